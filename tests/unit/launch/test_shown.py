"""A view that stands still holds up nobody, and nothing of what it has not shown is lost in silence."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

import pytest

from flowpoint.launch import shown
from flowpoint.launch.control import Data, Event, EventKind
from flowpoint.launch.shown import Shown


class HeldView:
    """Shows nothing before it is let go."""

    shows_figures = True

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.seen: list[str | int] = []
        self.failure: Exception | None = None

    def on_event(self, event: Event) -> None:
        self.let_go.wait()
        if self.failure is not None:
            raise self.failure
        self.seen.append(event.text)

    def refresh(self, status: Data, workers: Sequence[Data]) -> None:
        self.let_go.wait()
        self.seen.append(status["id"])


@pytest.fixture
def view() -> Iterator[HeldView]:
    view = HeldView()
    yield view
    view.let_go.set()


def tell(shows: Shown, *texts: str) -> None:
    for text in texts:
        shows.on_event(Event(EventKind.WARNING, text))


def until(condition: Callable[[], object]) -> None:
    """Within the timeout of the test."""
    while not condition():
        pass


def test_events_are_shown_in_their_order_and_of_figures_only_the_newest(view: HeldView) -> None:
    shows = Shown(view)

    tell(shows, "one", "two")
    shows.refresh({"id": 1}, [])
    assert shows.is_behind
    shows.refresh({"id": 2}, [])
    tell(shows, "three")
    view.let_go.set()
    shows.close()

    assert view.seen == ["one", "two", "three", 2]
    assert not shows.is_behind


def test_events_beyond_the_limit_are_counted_and_that_is_shown(view: HeldView, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown, "EVENTS_MAX", 2)
    shows = Shown(view)

    tell(shows, "in hand")
    until(lambda: not shows._waiting)
    tell(shows, "one", "two", "three", "four")
    view.let_go.set()
    shows.close()

    assert view.seen[:3] == ["in hand", "one", "two"]
    assert view.seen[3:] == [
        "2 events are not shown, as nobody took what was shown before; the job's log has them",
    ]


def test_a_view_that_fails_is_given_up_and_says_so_once(view: HeldView) -> None:
    view.failure = OSError(28, "No space left on device")
    shows = Shown(view)

    tell(shows, "one", "two")
    view.let_go.set()
    until(lambda: not shows.shows_figures)
    tell(shows, "three")
    shows.refresh({"id": 1}, [])

    assert "No space left on device" in shows.take_problem()
    assert shows.take_problem() == ""
    assert view.seen == []
    shows.close()


def test_where_nothing_is_shown_no_thread_is_begun(view: HeldView) -> None:
    before = threading.active_count()
    shows = Shown(view)

    assert threading.active_count() == before
    shows.close()
