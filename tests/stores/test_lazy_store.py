"""A store that is opened by its first request, and opened anew when it is gone."""

from __future__ import annotations

import pytest

from astyqueue import ids
from astyqueue.errors import Closed, StoreGone, StoreUnavailable
from astyqueue.protocol.steps import Read, Request, Send
from astyqueue.store import Batch, Name, Named, Put, Store
from astyqueue.stores import open_store
from astyqueue.stores.lazy_store import LazyStore
from astyqueue.testing import Failing, TimeMachine

NAME = Name(2, 0, ids.first_at(0), 1)
BATCH = Batch("row", puts=(Put(NAME, b"here"),))


class Opening:
    """Opens a store in memory, unless it is away; counts the attempts."""

    def __init__(self, clock: TimeMachine) -> None:
        self.store: Store = open_store("memory://", clock=clock)
        self.is_away = False
        self.attempts = 0

    def __call__(self) -> Store:
        self.attempts += 1
        if self.is_away:
            message = "away"
            raise StoreUnavailable(message)
        return self.store


@pytest.fixture
def clock() -> TimeMachine:
    return TimeMachine()


@pytest.fixture
def opening(clock: TimeMachine) -> Opening:
    return Opening(clock)


def test_the_first_request_opens_it(opening: Opening, clock: TimeMachine) -> None:
    store = LazyStore(opening, clock)
    assert "not open yet" in repr(store)
    assert opening.attempts == 0
    store.send(BATCH)
    [[column]] = store.read((Named("row", (NAME,)),))
    assert (column.value, opening.attempts) == (b"here", 1)
    assert (store.spread, store.at_once) == (opening.store.spread, opening.store.at_once)


def test_while_it_cannot_be_opened_one_request_in_a_second_tries(opening: Opening, clock: TimeMachine) -> None:
    store, opening.is_away = LazyStore(opening, clock), True
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match="away"):
            store.send(BATCH)
    assert opening.attempts == 1
    opening.is_away = False
    clock.advance("1s")
    store.send(BATCH)
    assert opening.attempts == 2


def test_one_that_is_gone_is_closed_and_opened_anew(opening: Opening, clock: TimeMachine) -> None:
    old = opening.store
    opening.store = Failing(old, StoreGone("replaced"), at=1)
    store = LazyStore(opening, clock)
    with pytest.raises(StoreGone):
        store.send(BATCH)
    with pytest.raises(Closed):
        old.send(BATCH)
    opening.store = open_store("memory://", clock=clock)
    store.send(BATCH)
    assert opening.attempts == 2


def test_a_request_under_way_while_another_one_finds_it_gone_goes_to_the_one_opened_anew(
    opening: Opening, clock: TimeMachine
) -> None:
    class Meanwhile(Failing):
        """Before the second request is carried out, a third one finds that the store is gone."""

        def perform(self, request: Request) -> object:
            if isinstance(request, Read):
                opening.store = open_store("memory://", clock=clock)
                with pytest.raises(StoreGone):
                    store.send(BATCH)
            return super().perform(request)

    opening.store = Meanwhile(opening.store, StoreGone("replaced"), at=2, of=(Send,))
    store = LazyStore(opening, clock)
    store.send(BATCH)
    assert store.read((Named("row", (NAME,)),)) == [[]]
    assert opening.attempts == 2


def test_once_closed_it_is_not_opened(opening: Opening, clock: TimeMachine) -> None:
    store = LazyStore(opening, clock)
    store.close()
    store.close()
    with pytest.raises(Closed):
        store.send(BATCH)
    assert opening.attempts == 0


def test_one_that_is_closed_while_it_is_being_opened_is_not_left_open(opening: Opening, clock: TimeMachine) -> None:
    def closed_meanwhile() -> Store:
        store.close()
        return opening()

    store = LazyStore(closed_meanwhile, clock)
    with pytest.raises(Closed):
        store.send(BATCH)
    with pytest.raises(Closed):
        opening.store.send(BATCH)
