"""From logits to one token, in numpy, in llama.cpp's order and meaning; and how likely tokens were.

Order (llama.cpp's common sampler): bias, penalties, constraint, top_k, typical_p, top_p, min_p, xtc, temperature, one
random draw; xtc has another one before it.
Every cut is made before anything costly: of a vocabulary of 65,536 only the candidates above a threshold are sorted.

Between two tokens the weights of the whole model go through the processor's caches, so what costs is less the size of
the vocabulary than the number of different calls: each comes back from main memory.

``logprob`` is the model's own, before a constraint's mask; ``allowed_logprob`` among the tokens that the mask left.
"""

from __future__ import annotations

import math
import secrets
import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from ...conversation.options import GenerationOptions, SamplingDefaults
from ...errors import LeapGenerationError
from ...system.dataclass import dataclass

if TYPE_CHECKING:
    from numpy import float32, float64, int64
    from numpy.typing import NDArray

    Candidates: TypeAlias = tuple[NDArray[int64], NDArray[float64]]
    """Tokens, likeliest first, and how far the logit of each is below the best."""
    from numpy.random import Generator

    from ..constraints.token_constraints import TokenConstraint

FIRST_DISTANCE = 4.0
"""How far below the best logit a search begins; it then adapts to the model."""
WIDENED = 3
"""How often a search is widened, by half, before it takes all tokens that a mask has left."""
MANY = 4
"""Times as many tokens as are wanted, from which on the next search begins nearer to the best."""


def within(logits: NDArray[float32], best: float, distance: float) -> Candidates:
    """All tokens no more than ``distance`` below the best; with infinity all that a mask has left."""
    return _in_order(_near(logits, best - distance), logits, best)


def _near(logits: NDArray[float32], least: float) -> NDArray[int64]:
    return (logits > least if least == -math.inf else logits >= least).nonzero()[0]


def _in_order(tokens: NDArray[int64], logits: NDArray[float32], best: float) -> Candidates:
    import numpy as np

    below = np.subtract(best, logits[tokens], dtype=np.float64)
    order = below.argsort(kind="stable")
    return tokens[order], below[order]


class LikeliestSearch:
    """Finds tokens of one sequence's logits, step after step."""

    def __init__(self) -> None:
        self._distance = FIRST_DISTANCE

    def likeliest(self, logits: NDArray[float32], best: float, count: int) -> Candidates:
        """The ``count`` likeliest, the first ones of equal ones; fewer where a mask has left fewer."""
        import numpy as np

        distance = self._distance
        tokens = _near(logits, best - distance)
        for _ in range(WIDENED):
            if len(tokens) >= count:
                break
            distance *= 1.5
            tokens = _near(logits, best - distance)
        if len(tokens) < count:
            tokens = _near(logits, -math.inf)
        if len(tokens) >= count:
            self._distance = distance
        if len(tokens) > MANY * count:
            self._distance = distance * 0.85
            values = logits[tokens]
            tokens = tokens[values >= np.partition(values, len(values) - count)[len(values) - count]]
        tokens, below = _in_order(tokens, logits, best)
        return tokens[:count], below[:count]

    def heaviest(self, logits: NDArray[float32], best: float, share: float) -> Candidates:
        """The fewest tokens that together have a ``share`` of the probability, likeliest first."""
        import numpy as np

        wanted = share * float(np.exp(logits - np.float32(best)).sum(dtype=np.float64))
        while True:
            tokens, below = within(logits, best, self._distance)
            cumulative = np.exp(-below).cumsum()
            if cumulative[-1] >= wanted or self._distance > 1000.0:
                break
            self._distance *= 1.5
        count = int(cumulative.searchsorted(wanted)) + 1
        if len(tokens) > MANY * count:
            self._distance *= 0.85
        return tokens[:count], below[:count]


def typical(tokens: NDArray[int64], below: NDArray[float64], share: float) -> Candidates:
    """The candidates whose surprise is nearest to the expected one, and that have a ``share`` of the probability."""
    import numpy as np

    shares = np.exp(-below)
    total = shares.sum()
    shares /= total
    surprise = below + math.log(total)
    nearest = np.abs(surprise - (shares * surprise).sum()).argsort(kind="stable")
    count = int(shares[nearest].cumsum().searchsorted(share, side="right")) + 1
    kept = np.sort(nearest[:count])
    return tokens[kept], below[kept] - below[kept[0]]


LEAST = -9999.0
"""The logprob of a token that the mask forbids, as in OpenAI's replies."""


@dataclass(frozen=True)
class TokenScore:
    """One token. ``top``: the likeliest tokens at its place and their logarithms, likeliest first; or those that were
    named beforehand, in their order."""

    token: int
    logprob: float
    allowed_logprob: float | None
    top: tuple[tuple[int, float], ...]


class ScoreRecorder:
    """Notes the score of each token that is sampled. ``top``: how many of the likeliest are noted beside it, or
    ``named``: which ones. ``of_forced``: tokens that a constraint forces are sampled for that, too."""

    def __init__(self, top: int, *, named: Sequence[int] = (), of_forced: bool = True) -> None:
        self.of_forced = of_forced
        self.scores: list[TokenScore] = []
        self._top = top
        self._named = named
        self._search = LikeliestSearch()
        self._below: NDArray[float32] | None = None
        """The model's own logits, less the best of them; memory that is used again for each token."""
        self._weights: NDArray[float32] | None = None
        self._total = 0.0
        self._best: tuple[tuple[int, float], ...] = ()

    def before_mask(self, logits: NDArray[float32]) -> None:
        """The model's own logits."""
        import numpy as np

        if self._below is None or self._weights is None:
            self._below, self._weights = np.empty_like(logits), np.empty_like(logits)
        below = np.subtract(logits, logits.max(), out=self._below)
        self._total = total = self._logarithm_of_weights(below)
        self._best = ()
        if self._named:
            self._best = tuple((token, float(below[token]) - total) for token in self._named)
        elif self._top:
            tokens, distances = self._search.likeliest(below, 0.0, self._top)
            self._best = tuple((n, -d - total) for n, d in zip(tokens.tolist(), distances.tolist(), strict=True))

    def _logarithm_of_weights(self, below: NDArray[float32]) -> float:
        import numpy as np

        return math.log(float(np.exp(below, out=self._weights).sum()))

    def forced(self, token: int) -> None:
        """A token that a constraint left no choice about, and that was not computed by itself."""
        self.scores.append(TokenScore(token, 0.0, 0.0, ()))

    def chosen(self, token: int, masked: NDArray[float32] | None) -> None:
        """The token that was sampled; ``masked``: the logits that a constraint left."""
        import numpy as np

        assert self._below is not None
        allowed = None
        if masked is not None:
            best = masked.max()
            total = float(best) + self._logarithm_of_weights(np.subtract(masked, best, out=self._weights))
            allowed = max(float(masked[token]) - total, LEAST)
        logprob = max(float(self._below[token]) - self._total, LEAST)
        self.scores.append(TokenScore(token, logprob, allowed, self._best))


def no_numbers() -> LeapGenerationError:
    """The error for logits among which one is NaN: no token is likelier than another."""
    return LeapGenerationError(
        "the model computed values that are not numbers (NaN), so there is no answer",
        hint="its file may be damaged: download it again, or use another quantization",
    )


RUNTIME_DEFAULTS = SamplingDefaults(temperature=0.8, top_p=0.95, min_p=0.05, repetition_penalty=1.0, top_k=40)
"""llama.cpp's own defaults, used where neither options nor manifest nor catalogue say anything."""

PENALTY_WINDOW = 64
DRAWS_AT_ONCE = 32
"""A call that makes one number takes as long."""
TAME = 1e9
"""Options up to this, and down to its inverse, keep all numbers finite."""
XTC_THRESHOLD = 0.1
MOST_XTC_THRESHOLD = 0.5
"""Above, at most one token is likely enough."""


class Sampler:
    """Draws the tokens of one sequence. Equal options, seed and logits give equal tokens.

    ``options`` must be complete for temperature, top_p, min_p, repetition_penalty and top_k.
    """

    def __init__(self, options: GenerationOptions, context: Iterable[int] = ()) -> None:
        self.temperature = options.temperature or 0.0
        self.top_k = options.top_k or 0
        self.mask_seconds = 0.0
        self.top_p = 1.0 if options.top_p is None else options.top_p
        self.min_p = options.min_p or 0.0
        self._typical_p = 1.0 if options.typical_p is None else options.typical_p
        self._xtc_probability = options.xtc_probability or 0.0
        self._xtc_threshold = XTC_THRESHOLD if options.xtc_threshold is None else options.xtc_threshold
        self.draws_alone = self._typical_p < 1.0 or self._xtc_probability > 0.0
        """Whether there are cuts that sampling several sequences together does not make."""
        self.is_greedy = self.temperature <= 0.0 or self.top_k == 1
        """Whether the likeliest token is taken, without a draw."""
        self._repetition = 1.0 if options.repetition_penalty is None else options.repetition_penalty
        self._frequency = options.frequency_penalty or 0.0
        self._presence = options.presence_penalty or 0.0
        self._bias = dict(options.logit_bias)
        self.recorder: ScoreRecorder | None = None
        """Notes how likely the tokens were, where the options ask for it."""
        if options.wants_logprobs:
            named, of_forced = options.logprob_tokens, options.forced_logprobs
            self.recorder = ScoreRecorder(options.top_logprobs or 0, named=named, of_forced=of_forced)
        self._seed = secrets.randbits(63) if options.rng_seed is None else options.rng_seed
        self._random: Generator | None = None
        self._draws: list[float] = []
        """The next ones, last first."""
        self._search = LikeliestSearch()
        window = PENALTY_WINDOW if options.repeat_last_n is None else options.repeat_last_n
        factors = (self.temperature or 1.0, self._repetition, *(abs(bias) or 1.0 for bias in self._bias.values()))
        self.is_extreme = not all(1 / TAME <= factor <= TAME for factor in factors)
        """Whether the options may make infinities, which they then mean."""
        penalised = self._repetition != 1.0 or self._frequency != 0.0 or self._presence != 0.0
        self._recent: deque[int] | None = None
        self.penalizes = penalised and window != 0
        self.changes_logits = self.penalizes or bool(self._bias)
        """Whether ``prepare`` does anything without a constraint and a recorder."""
        few_suffice = self.is_greedy or (self.top_k > 0 and not self.draws_alone)
        self.needs_all_logits = self.changes_logits or options.wants_logprobs or not few_suffice
        """Whether the likeliest tokens are not enough to sample as the options say."""
        if self.penalizes:
            tokens = (key for key in context if key >= 0)  # the others stand for embeddings
            self._recent = deque(tokens, maxlen=None if window < 0 else window)
            self._counts = Counter(self._recent)

    def accept(self, token: int) -> None:
        """Take note of a token of the sequence, for the penalties."""
        if self._recent is None:
            return
        if self._recent.maxlen is not None and len(self._recent) == self._recent.maxlen:
            oldest = self._recent[0]
            self._counts[oldest] -= 1
            if not self._counts[oldest]:
                del self._counts[oldest]
        self._recent.append(token)
        self._counts[token] += 1

    def sample(self, logits: NDArray[float32], constraint: TokenConstraint | None = None) -> int:
        """Choose a token; ``logits`` (shape [vocabulary]) is changed in place."""
        if self.is_extreme:
            import numpy as np

            with np.errstate(over="ignore", divide="ignore"):  # it takes as long as a pass over the vocabulary
                return self._sample(logits, constraint)
        return self._sample(logits, constraint)

    def _sample(self, logits: NDArray[float32], constraint: TokenConstraint | None) -> int:
        self.prepare(logits, constraint)
        token = self.choose(logits)
        if self.recorder is not None:
            self.recorder.chosen(token, None if constraint is None else logits)
        return token

    def choose(self, logits: NDArray[float32]) -> int:
        """A token from logits that ``prepare`` changed. Raises LeapGenerationError for logits that are no numbers."""
        likeliest = int(logits.argmax())  # half of what ``max`` takes
        best: float = logits.item(likeliest)
        if math.isnan(best):
            raise no_numbers()
        return likeliest if self.is_greedy else self._draw(*self._weighted(logits, best))

    def prepare(self, logits: NDArray[float32], constraint: TokenConstraint | None) -> None:
        """What comes before the choice: bias, penalties and the constraint's mask, in place."""
        if self.recorder is not None:
            self.recorder.before_mask(logits)
        if self._bias:
            self._apply_bias(logits)
        if self._recent:
            self._apply_penalties(logits)
        if constraint is not None:
            began = time.perf_counter()
            constraint.apply(logits)
            self.mask_seconds += time.perf_counter() - began

    def _weighted(self, logits: NDArray[float32], best: float) -> tuple[NDArray[int64], NDArray[float64]]:
        """The candidates that all cuts leave (likeliest first) and numbers in proportion to their probabilities at the
        temperature."""
        import numpy as np

        if not math.isfinite(best):
            return np.array([int(logits.argmax())]), np.array([1.0])
        tokens, below = self._candidates(logits, best)
        if self._typical_p < 1.0:
            tokens, below = typical(tokens, below, self._typical_p)
        keep = len(tokens)
        if self.top_p < 1.0 and (self.top_k or self._typical_p < 1.0):
            cumulative = np.exp(-below).cumsum()
            keep = min(keep, int(cumulative.searchsorted(self.top_p * cumulative[-1])) + 1)
        if self.min_p > 0.0:
            keep = min(keep, max(1, int(below.searchsorted(-math.log(self.min_p), side="right"))))
        if self._xtc_probability > 0.0:
            tokens, below = self._after_xtc(tokens[:keep], below[:keep])
        return tokens[:keep], np.exp(below[:keep] / -self.temperature)

    def _after_xtc(self, tokens: NDArray[int64], below: NDArray[float64]) -> Candidates:
        """The candidates without those that are likely enough, but for the last of them."""
        import numpy as np

        if len(below) < 2 or self._xtc_threshold > MOST_XTC_THRESHOLD or self.random() > self._xtc_probability:
            return tokens, below
        weights = np.exp(-below)
        first = max(0, int((weights >= self._xtc_threshold * weights.sum()).sum()) - 1)
        return tokens[first:], below[first:] - below[first]

    def _candidates(self, logits: NDArray[float32], best: float) -> Candidates:
        """The ``top_k`` best, else those that ``top_p`` leaves, else all that ``min_p`` may leave, else all; all for
        ``typical_p``."""
        if self.top_k:
            return self._search.likeliest(logits, best, min(self.top_k, len(logits)))
        if self._typical_p < 1.0:
            return within(logits, best, math.inf)
        if self.top_p < 1.0:
            return self._search.heaviest(logits, best, self.top_p)
        return within(logits, best, 1e-3 - math.log(self.min_p) if self.min_p > 0.0 else math.inf)

    def _apply_bias(self, logits: NDArray[float32]) -> None:
        for token, bias in self._bias.items():
            if token < len(logits):
                logits[token] += bias

    def _apply_penalties(self, logits: NDArray[float32]) -> None:
        """llama.cpp's penalties: a positive logit is divided by repetition_penalty and a negative one multiplied; then
        count * frequency and presence are subtracted."""
        import numpy as np

        tokens = np.fromiter(self._counts.keys(), np.int64, len(self._counts))
        values: NDArray[Any] = logits[tokens]
        if self._repetition != 1.0:
            values = np.where(values > 0, values / self._repetition, values * self._repetition)
        if self._frequency or self._presence:
            counts = np.fromiter(self._counts.values(), np.float32, len(self._counts))
            values = values - counts * self._frequency - self._presence
        logits[tokens] = values

    def _draw(self, tokens: NDArray[int64], weights: NDArray[float64]) -> int:
        cumulative = weights.cumsum()
        index = int(cumulative.searchsorted(self.random() * cumulative[-1], side="right"))
        return int(tokens[min(index, len(tokens) - 1)])

    def random(self) -> float:
        """The next draw, at least 0 and below 1."""
        if not self._draws:
            if self._random is None:
                import numpy as np

                self._random = np.random.Generator(np.random.PCG64(self._seed))
            self._draws = self._random.random(DRAWS_AT_ONCE)[::-1].tolist()
        return self._draws.pop()
