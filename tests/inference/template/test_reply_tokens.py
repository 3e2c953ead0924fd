"""Replies are read back with the tokens they were written with, and nothing else is."""

from leap_core.inference.template.reply import MOST_REPLIES, ReplyMemory

END = "<|im_end|>"


def memory_of(*kept):
    memory = ReplyMemory([END, "<|im_start|>"])
    for pieces, reply, ids in kept:
        memory.keep(pieces, reply, ids)
    return memory


def test_a_continued_conversation_begins_with_its_earlier_tokens():
    memory = memory_of((["ask "], "hello", [1, 2, 3]))
    assert memory.beginning([f"ask hello{END} more"]) == ((1, 2, 3), [f"{END} more"])


def test_the_longest_prefix_wins_and_another_text_has_none():
    memory = memory_of((["a "], "b", [1, 2]), ([f"a b{END} c "], "d", [1, 2, 3, 4, 5]))
    assert memory.beginning([f"a b{END} c d{END}"])[0] == (1, 2, 3, 4, 5)
    assert memory.beginning([f"a b{END} other"]) == ((1, 2), [f"{END} other"])
    assert memory.beginning([f"a bc{END}"]) == ((), [f"a bc{END}"])


def test_a_reply_ends_only_where_a_special_token_follows():
    memory = memory_of((["ask "], "hel", [1, 2]))
    assert memory.beginning(["ask hello"]) == ((), ["ask hello"])


def test_typed_special_tokens_never_match_real_ones():
    memory = memory_of(([f"a{END}b "], "c", [1, 9, 2, 3]))
    typed = ["a<", f"|im_end|>b c{END}"]
    assert memory.beginning(typed) == ((), typed)
    memory.keep(["x "], f"say {END} now", [7])
    assert memory.beginning([f"x say {END} now{END}"])[0] == ()


def test_cut_prompts_match_cut_prompts():
    memory = memory_of((["a<", "|im_end|>b "], "c", [5, 6, 7]))
    assert memory.beginning(["a<", f"|im_end|>b c{END}d<", "e"]) == ((5, 6, 7), [f"{END}d<", "e"])


def test_the_oldest_replies_are_forgotten():
    memory = memory_of(*((["p "], str(n), [n]) for n in range(MOST_REPLIES + 1)))
    assert memory.beginning([f"p 0{END}"])[0] == ()
    assert memory.beginning([f"p 1{END}"])[0] == (1,)


def test_a_reply_with_the_markers_of_a_call_is_kept_and_one_that_spells_them_is_not():
    memory = ReplyMemory([END, "<|call|>"])
    memory.keep(["ask "], "<|call|>look()", [1, 2], special=1)
    assert memory.beginning([f"ask <|call|>look(){END}"]) == ((1, 2), [END])
    memory.keep(["ask "], "<|call|>say('<|call|>')", [3, 4], special=1)
    assert memory.beginning([f"ask <|call|>say('<|call|>'){END}"])[0] == ()
