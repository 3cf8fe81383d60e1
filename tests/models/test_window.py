"""How many are in flight: told by hand what the host does, at which time."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from coeval.models.pacing.window import Window


def answer(window: Window, count: int, now: float, latency_s: float = 1.0) -> float:
    """So many answers to requests sent when all slots were in use."""
    for _ in range(count):
        window.record_answer_and_resize(0, latency_s, int(window.size), now)
    return window.size


def round_trips(window: Window, count: int, now: float) -> list[float]:
    """The size after each of so many round trips of 1 s in which everything is answered."""
    return [answer(window, int(window.size), now + n) for n in range(1, count + 1)]


def test_the_size_doubles_until_the_host_is_first_overloaded() -> None:
    assert round_trips(Window(256, 16), 5, 0.0) == [32, 64, 128, 256, 256]


def test_a_refusal_takes_one_off_and_more_of_the_same_time_one_each_down_to_half() -> None:
    window = Window(256, 64)
    assert window.record_refusal_and_check_spacing(10.0, 10.1, is_spacing=False)
    assert window.size == 63
    for _ in range(20):
        assert not window.record_refusal_and_check_spacing(10.05, 10.15, is_spacing=True), (
            "it was sent before the first came back"
        )
    assert window.size == 43
    for _ in range(100):
        window.record_refusal_and_check_spacing(10.05, 10.15, is_spacing=True)
    assert window.size == 32


def test_refusals_that_go_on_halve_once_per_answer_latency() -> None:
    window = Window(256, 64)
    answer(window, 64, 9.0, latency_s=5.0)
    sizes, now = [], 10.0
    while now < 24:
        window.record_refusal_and_check_spacing(now, now + 0.05, is_spacing=now > 10)
        sizes.append(window.size)
        now += 0.5
    assert sizes[0] == 127
    assert sorted(set(sizes[1:]), reverse=True) == [64, 32, 16]


def test_before_any_answer_there_is_one_cut() -> None:
    window = Window(256, 64)
    for n in range(100):
        window.record_refusal_and_check_spacing(float(n), n + 0.05, is_spacing=n > 0)
    assert window.size == 32


def test_after_a_cut_it_doubles_back_to_what_was_good_and_then_probes_in_growing_steps() -> None:
    window = Window(256, 64)
    answer(window, 16, 1.0)
    window.record_refusal_and_check_spacing(2.0, 2.1, is_spacing=False)
    good = window.size
    window.record_refusal_and_check_spacing(2.2, 2.3, is_spacing=True)
    assert window.size < good / 2 + 1
    assert answer(window, 40, 3.0) < good, "sent before the refusal: they say nothing"
    sizes = round_trips(window, 8, 4.0)
    assert sizes[0] == good
    assert [after - before for before, after in pairwise(sizes)] == [
        1,
        2,
        4,
        8,
        16,
        32,
        64,
    ]


def test_a_probe_that_fails_is_taken_back_without_a_pause_and_the_next_waits_twice_as_long() -> None:
    window = Window(256, 16)
    answer(window, 1, 1.0)
    window.record_refusal_and_check_spacing(1.5, 1.6, is_spacing=False)
    good, waited, now = window.size, [], 2.0
    for _ in range(6):
        rounds = 0
        while window.size == good:
            now += 1.0
            rounds += 1
            answer(window, int(window.size), now)
        waited.append(rounds)
        assert not window.record_refusal_and_check_spacing(now + 0.1, now + 0.2, is_spacing=False)
        assert window.size == good
        now += 1.0
    assert waited[1:] == [2 * rounds for rounds in waited[:-1]]


def test_time_outs_halve_once_for_all_that_were_in_flight_together() -> None:
    window = Window(256, 128)
    for _ in range(128):
        window.record_timeout_and_shrink(0.0, 20.0, alone=False)
    assert window.size == 64
    window.record_timeout_and_shrink(20.5, 40.5, alone=False)
    assert window.size == 32
    assert answer(window, 1, 45.0) == 32, "what timed out is not taken for good again"


def test_silence_leaves_a_few_in_flight() -> None:
    window = Window(256, 128)
    for n in range(10):
        window.record_timeout_and_shrink(n * 20 + 0.5, n * 20 + 20.0, alone=True)
    assert window.size == 16
    window = Window(256, 4)
    window.record_timeout_and_shrink(0.0, 20.0, alone=True)
    assert window.size == 4


NEWS = st.lists(
    st.tuples(
        st.sampled_from(["answer", "answer", "answer", "refused", "again", "late", "silent", "reopen"]),
        st.floats(0, 3),
        st.floats(0, 3),
    ),
    max_size=200,
)


@given(NEWS, st.integers(1, 50), st.integers(1, 50))
def test_whatever_happens_it_is_between_one_and_the_ceiling(
    news: list[tuple[str, float, float]], ceiling: int, start: int
) -> None:
    window, now = Window(ceiling, start), 0.0
    for what, passed, took in news:
        now += passed
        match what:
            case "answer":
                window.record_answer_and_resize(0, took, int(window.size), now)
            case "refused" | "again":
                window.record_refusal_and_check_spacing(now - took, now, is_spacing=what == "again")
            case "late" | "silent":
                window.record_timeout_and_shrink(now - took, now, alone=what == "silent")
            case _:
                window.grow_to_start()
        assert 1 <= window.size <= ceiling
