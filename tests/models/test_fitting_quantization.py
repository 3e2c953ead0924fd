"""Without a named quantization a download takes the usual one, or the largest that fits into memory."""

from __future__ import annotations

from pathlib import Path

from leap_core.errors import LeapModelDownloadError
from leap_core.models.catalogue import Catalogue
from leap_core.models.download.plan import DownloadPlanner
from leap_core.models.hub import RemoteFile, RepositoryListing
from leap_core.models.reference import Repository
from leap_core.models.store import Store

SIZES = {"Q8_0": 8_000, "Q6_K": 6_000, "Q4_K_M": 4_000, "Q3_K_M": 3_000, "Q2_K": 2_000}


class Hub:
    """A hub that has one repository; it is asked for nothing else."""

    def listing(self, repo: str, _revision: str | None) -> RepositoryListing:
        names = {f"M-{name}.gguf": size for name, size in SIZES.items()}
        files = {name: RemoteFile(name, f"http://hub/{name}", size) for name, size in names.items()}
        if repo != "o/M-GGUF":
            raise LeapModelDownloadError("there is no such repository")
        return RepositoryListing(repo, "c0ffee", files, "mit")


def planned(memory: int | None, quantization: str | None = None) -> tuple[str, str]:
    planner = DownloadPlanner(Hub(), Store(Path("/nowhere")), Catalogue([]), memory)  # type: ignore[arg-type]
    plan = planner.plan(Repository("o/M-GGUF", quantization))
    assert plan.license == "mit"
    return plan.quantization, " ".join(plan.notices)


def test_the_usual_quantization_is_taken_where_it_fits() -> None:
    assert planned(None) == ("Q4_K_M", "")
    assert planned(5_000) == ("Q4_K_M", "")


def test_the_largest_that_fits_is_taken_where_the_usual_one_does_not() -> None:
    quantization, notice = planned(4_999)
    assert quantization == "Q3_K_M" and "Q4_K_M does not fit" in notice


def test_a_requested_quantization_is_always_used() -> None:
    assert planned(1_000, "Q8_0") == ("Q8_0", "")


def test_no_fitting_quantization_is_reported() -> None:
    quantization, notice = planned(1_000)
    assert quantization == "Q4_K_M" and "no quantization that fits" in notice
