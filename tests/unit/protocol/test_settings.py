"""Creating, joining, changing and forgetting a queue's settings, and the list of queues."""

from __future__ import annotations

import json

import pytest

from astyqueue.errors import (
    BadInput,
    BadSetting,
    LayoutDiffers,
    NotFound,
    OutcomeUnknown,
    StoreUnavailable,
    Undecodable,
)
from astyqueue.model.settings import Behaviour, Layout, Settings, check_queue_name
from astyqueue.protocol.admin.settings import (
    SETTINGS,
    OpenedSettings,
    change_behaviour,
    delete_settings,
    encode_settings,
    list_queues,
    load_settings,
    open_queue,
)
from astyqueue.protocol.layout.rows import QUEUES, settings_row
from astyqueue.protocol.row.header_commit import COMMIT_TRIES
from astyqueue.protocol.steps import Commit, Steps
from astyqueue.store import Batch, Put, Slice, Spread, Store
from astyqueue.testing import Failing
from astyqueue.units import SECOND
from tests.modelcheck.executor import History, Scenario
from tests.modelcheck.explorer import explore
from tests.unit.protocol.stage import Meddling, Stage, Unanswered

MINUTE = 60 * SECOND


@pytest.fixture
def stage() -> Stage:
    return Stage()


def opened(**asked: object) -> Steps[OpenedSettings]:
    """Open the queue `mail`; fields of the layout and of the behaviour may be given alike."""
    layout = {field: value for field, value in asked.items() if field in Layout.model_fields}
    behaviour = {field: value for field, value in asked.items() if field not in layout}
    return open_queue("mail", layout=layout, behaviour=behaviour)


def overwrite(store: Store, value: bytes) -> None:
    store.commit(Batch(settings_row("mail"), (Put(SETTINGS, value),)), ())


def test_a_new_queue_has_what_was_asked_and_the_defaults(stage: Stage) -> None:
    made = stage.run(opened(priorities=3, lease_us=5 * MINUTE))
    expected = Settings(name="mail", layout=Layout(priorities=3), behaviour=Behaviour(lease_us=5 * MINUTE))
    assert made == OpenedSettings(expected, created=True)
    assert stage.run(load_settings("mail")) == expected
    assert stage.run(list_queues()) == ["mail"]


def test_a_setting_that_older_releases_do_not_know_is_written_only_when_it_was_changed(stage: Stage) -> None:
    made = stage.run(opened())
    assert b"deduplication" not in encode_settings(made.settings)
    changed = stage.run(change_behaviour("mail", {"deduplication_us": 7 * 24 * 60 * MINUTE}))
    assert b"deduplication" in encode_settings(changed)
    assert stage.run(load_settings("mail")) == changed
    assert stage.run(change_behaviour("mail", {"deduplication_us": 24 * 60 * MINUTE})) == made.settings
    with pytest.raises(BadSetting, match="deduplication is 31d and must be at most 30d"):
        stage.run(change_behaviour("mail", {"deduplication_us": 31 * 24 * 60 * MINUTE}))


def test_who_opens_a_queue_that_exists_joins_it(stage: Stage) -> None:
    first = stage.run(opened(priorities=3, max_attempts=7))
    again = stage.run(opened())
    assert again == OpenedSettings(first.settings, created=False)


def test_another_layout_is_refused_naming_each_difference_as_people_write_it(stage: Stage) -> None:
    stage.run(opened(time_shards=30, time_shard_us=90 * MINUTE, priorities=2))
    with pytest.raises(LayoutDiffers) as raised:
        stage.run(opened(time_shards=30, time_shard_us=60 * MINUTE, priorities=3))
    assert set(raised.value.differences) == {("every", "1h30m", "1h"), ("priorities", 2, 3)}
    assert "every is '1h30m', not the requested '1h'" in str(raised.value)


def test_stored_behaviour_counts_and_the_difference_is_reported(stage: Stage) -> None:
    stage.run(opened(lease_us=2 * MINUTE, max_attempts=5))
    again = stage.run(opened(lease_us=5 * MINUTE, max_attempts=5))
    assert again.settings.behaviour.lease_us == 2 * MINUTE
    assert again.differs == (("lease", "2m", "5m"),)
    assert stage.run(load_settings("mail")) == again.settings


@pytest.mark.stores("memory")  # each order is a world of its own, and there are hundreds
def test_of_two_who_create_a_queue_at_once_both_get_the_same() -> None:
    def make_world() -> Scenario:
        stage = Stage()

        def judge(history: History) -> str | None:
            ann, bob = history.results["ann"], history.results["bob"]
            assert isinstance(ann, OpenedSettings)
            assert isinstance(bob, OpenedSettings)
            stored = stage.run(load_settings("mail"))
            if not ann.settings == bob.settings == stored:
                return f"{ann} and {bob}"
            return None if stage.run(list_queues()) == ["mail"] else "it is not listed"

        return Scenario(
            stage.store, {"ann": lambda: opened(lease_us=MINUTE), "bob": lambda: opened(lease_us=2 * MINUTE)}, judge
        )

    explored = explore(make_world, isolated=True, unknowns=1).require_none()
    assert explored.complete
    assert explored.schedules > 10


@pytest.mark.every_store
def test_of_two_layouts_at_once_one_is_refused(stage: Stage) -> None:
    meddling = Meddling(stage.store, [lambda: stage.run(opened(priorities=2))])
    with pytest.raises(LayoutDiffers):
        stage.run(opened(priorities=3), meddling)
    assert stage.run(opened(priorities=2)).created is False


@pytest.mark.parametrize("at", [1, 2])
def test_opening_again_completes_what_stopped_half_way(stage: Stage, at: int) -> None:
    with pytest.raises(StoreUnavailable):
        stage.run(opened(), Failing(stage.store, StoreUnavailable("gone"), at=at, of=(Commit,)))
    assert stage.run(list_queues()) == []
    assert stage.run(opened()).created is (at == 1)
    assert stage.run(list_queues()) == ["mail"]


@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.every_store
def test_creating_with_an_unknown_outcome_is_read_back(stage: Stage, at: int, *, applied: bool) -> None:
    unknown = Failing(stage.store, OutcomeUnknown("no answer"), at=at, of=(Commit,), applied=applied)
    assert stage.run(opened(priorities=2), unknown).created
    assert stage.run(list_queues()) == ["mail"]


def test_a_store_that_never_lets_it_through_ends_with_an_error(stage: Stage) -> None:
    silent = Unanswered(stage.store, lambda _: None, times=1_000)
    with pytest.raises(OutcomeUnknown) as caught:
        stage.run(opened(), silent)
    assert f"mail:settings: gave up after {COMMIT_TRIES} attempts" in str(caught.value.__cause__)
    assert silent.commits == COMMIT_TRIES


@pytest.mark.parametrize("name", ["a", "Mail-box_7.x", "x" * 100])
def test_names_that_a_queue_may_have(name: str) -> None:
    assert check_queue_name(name) == name


@pytest.mark.parametrize("name", ["", "x" * 101, "a b", "a:b", "a/b", "mail\n", "ü", 7, None])
def test_names_that_no_queue_may_have(stage: Stage, name: str) -> None:
    with pytest.raises(BadInput, match="is not a valid queue name: use 1 to 100 letters"):
        stage.run(open_queue(name, layout={}, behaviour={}))
    assert stage.run(list_queues()) == []


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        ({"lease_us": 1_000}, "lease is 1ms and must be at least 100ms"),
        ({"lease_us": 13 * 60 * MINUTE}, "lease is 13h and must be at most 12h"),
        ({"time_shard_us": 5}, "every is 0.000005s and must be at least 1s"),
        ({"priorities": 11}, "priorities is 11 and must be at most 10"),
        ({"max_attempts": 0}, "max_attempts is 0 and must be at least 1"),
        ({"max_attempts": "5"}, "max_attempts is '5': input should be a valid integer"),
        ({"max_attempts": True}, "max_attempts is True: input should be a valid integer"),
        ({"colour": "red"}, "a queue has no setting 'colour'"),
    ],
)
def test_a_setting_that_no_queue_can_have_is_refused_in_plain_words(
    stage: Stage, asked: dict[str, object], complaint: str
) -> None:
    with pytest.raises(BadSetting) as raised:
        stage.run(opened(**asked))
    assert str(raised.value) == complaint
    assert stage.run(load_settings("mail")) is None


def test_a_change_touches_only_what_it_names(stage: Stage) -> None:
    stage.run(opened(lease_us=5 * MINUTE, priorities=2))
    changed = stage.run(change_behaviour("mail", {"paused": True, "max_attempts": 3}))
    assert changed == Settings(
        name="mail", layout=Layout(priorities=2), behaviour=Behaviour(lease_us=5 * MINUTE, paused=True, max_attempts=3)
    )
    assert stage.run(load_settings("mail")) == changed


def test_a_change_to_what_cannot_be_is_refused_and_changes_nothing(stage: Stage) -> None:
    before = stage.run(opened()).settings
    for changes in ({"lease_us": 0, "paused": True}, {"priorities": 4}):
        with pytest.raises(BadSetting):
            stage.run(change_behaviour("mail", changes))
    assert stage.run(load_settings("mail")) == before


def test_a_queue_that_does_not_exist_cannot_be_changed(stage: Stage) -> None:
    with pytest.raises(NotFound, match="no queue 'mail'"):
        stage.run(change_behaviour("mail", {"paused": True}))
    assert stage.run(load_settings("mail")) is None


def test_two_changes_at_once_both_count(stage: Stage) -> None:
    stage.run(opened())
    meddling = Meddling(stage.store, [lambda: stage.run(change_behaviour("mail", {"paused": True}))])
    changed = stage.run(change_behaviour("mail", {"max_attempts": 9}), meddling)
    assert (changed.behaviour.paused, changed.behaviour.max_attempts) == (True, 9)
    assert stage.run(load_settings("mail")) == changed


@pytest.mark.parametrize("applied", [True, False])
def test_a_change_of_unknown_outcome_is_read_back(stage: Stage, *, applied: bool) -> None:
    stage.run(opened())
    unknown = Failing(stage.store, OutcomeUnknown("no answer"), of=(Commit,), applied=applied)
    changed = stage.run(change_behaviour("mail", {"max_attempts": 9}), unknown)
    assert stage.run(load_settings("mail")) == changed
    assert changed.behaviour.max_attempts == 9


def test_a_change_to_what_is_already_so_writes_nothing(stage: Stage) -> None:
    stage.run(opened(max_attempts=9))
    counting = Meddling(stage.store, [])
    stage.run(change_behaviour("mail", {"max_attempts": 9}), counting)
    assert counting.commits == 0


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"\x02{}", "format byte 02, and this astyqueue knows 01"),
        (b"", "format byte missing"),
        (b"\x01{", "EOF while parsing"),
        (b'\x01{"name":"mail","colour":1}', "no setting 'colour'"),
        (b'\x01{"layout":{}}', "name"),
        (b'\x01{"name":"other"}', "those of 'other'"),
        (b"\x01[]", "not an object"),
        (b'\x01{"name":"mail","behaviour":5}', "not an object"),
    ],
)
def test_settings_that_cannot_be_read_are_named_and_left_as_they_are(stage: Stage, value: bytes, why: str) -> None:
    stage.run(opened())
    overwrite(stage.store, value)
    for steps in (load_settings("mail"), opened(), change_behaviour("mail", {"paused": True})):
        with pytest.raises(Undecodable, match="mail:settings: the settings") as raised:
            stage.run(steps)
        assert why in raised.value.why
    assert stage.store.read((Slice(settings_row("mail"), 0),))[0][0].value == value


def test_settings_written_before_there_was_a_setting_have_its_default(stage: Stage) -> None:
    stage.run(opened())
    overwrite(stage.store, b'\x01{"name":"mail","layout":{"priorities":2},"behaviour":{"lease_us":5000000}}')
    stored = stage.run(load_settings("mail"))
    assert stored == Settings(name="mail", layout=Layout(priorities=2), behaviour=Behaviour(lease_us=5 * SECOND))


def test_queues_are_listed_in_alphabetical_order(stage: Stage) -> None:
    for name in ("pears", "apples", "plums"):
        stage.run(open_queue(name, layout={}, behaviour={}))
    stage.run(delete_settings("pears"))
    stage.run(delete_settings("pears"))
    assert stage.run(list_queues()) == ["apples", "plums"]


def test_more_queues_than_a_page_are_listed(stage: Stage) -> None:
    names = sorted(f"q{number}" for number in range(1_001))
    for name in names:
        stage.run(open_queue(name, layout={}, behaviour={}))
    assert stage.run(list_queues()) == names


def test_an_entry_of_the_list_that_cannot_be_read_is_named_and_the_others_are_listed(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.run(opened())
    stage.store.commit(Batch(QUEUES, (Put(SETTINGS, b"\x01?"),)), ())
    assert stage.run(list_queues()) == ["mail"]
    assert "queue_entry_unreadable error=\"row :queues: the entry b'" in caplog.text


NEXT_VERSION = (
    b'\x01{"name":"mail","layout":{"time_shards":1,"time_shard_us":3600000000,"concurrency_shards":1,"priorities":2,"placement":"time"},'
    b'"behaviour":{"lease_us":60000000,"max_attempts":"unlimited","paused":false,"history":"sampled","rate":{"per_second":5}}}'
)


def test_what_a_newer_client_stored_of_the_behaviour_is_ignored_and_kept(stage: Stage) -> None:
    stage.run(opened())
    overwrite(stage.store, NEXT_VERSION)
    stored = stage.run(opened()).settings
    assert (stored.behaviour, stored.layout.priorities) == (Behaviour(lease_us=MINUTE), 2)
    assert stored.unread == {"max_attempts": "unlimited", "history": "sampled", "rate": {"per_second": 5}}
    followed = stage.run(load_settings("mail", last=Behaviour(max_attempts=9, lease_us=5 * MINUTE)))
    assert followed is not None
    assert followed.behaviour == Behaviour(lease_us=MINUTE, max_attempts=9)

    changed = stage.run(change_behaviour("mail", {"paused": True, "max_attempts": 7}))

    assert changed.behaviour == Behaviour(lease_us=MINUTE, max_attempts=7, paused=True)
    written = json.loads(stage.store.read((Slice(settings_row("mail"), 0),))[0][0].value[1:])["behaviour"]
    assert (written["rate"], written["history"], written["max_attempts"]) == ({"per_second": 5}, "sampled", 7)


def test_a_change_that_a_newer_client_has_made_already_writes_nothing(stage: Stage) -> None:
    stage.run(opened())
    overwrite(stage.store, NEXT_VERSION)
    stage.run(change_behaviour("mail", {"paused": True}))
    counting = Meddling(stage.store, [])
    stage.run(change_behaviour("mail", {"paused": True}), counting)
    assert counting.commits == 0


@pytest.mark.parametrize("layout", [b'{"colour":1}', b'{"time_shards":"many"}', b"5"])
def test_a_layout_of_a_newer_client_is_not_guessed(stage: Stage, layout: bytes) -> None:
    stage.run(opened())
    overwrite(stage.store, b'\x01{"name":"mail","layout":%b,"behaviour":{}}' % layout)
    with pytest.raises(Undecodable, match="mail:settings: the settings"):
        stage.run(opened())


def test_a_queue_made_anew_while_the_old_one_is_forgotten_is_whole(stage: Stage) -> None:
    stage.run(opened(priorities=2))
    stage.run(delete_settings("mail"), Meddling(stage.store, [lambda: None, lambda: stage.run(opened(priorities=3))]))
    assert stage.run(list_queues()) == ["mail"]
    assert not stage.run(opened(priorities=3)).created


def test_a_new_queue_is_spread_as_suits_its_store_where_nothing_else_is_asked(stage: Stage) -> None:
    spread = Spread(time_shards=30, concurrency_shards=8)

    opened = stage.run(open_queue("mail", layout={"concurrency_shards": 2}, behaviour={}, spread=spread))

    assert opened.settings.layout == Layout(time_shards=30, concurrency_shards=2)


def test_a_queue_that_exists_stays_as_it_is_laid_out_whatever_suits_the_store(stage: Stage) -> None:
    stage.run(open_queue("mail", layout={}, behaviour={}))

    opened = stage.run(open_queue("mail", layout={}, behaviour={}, spread=Spread(time_shards=30, concurrency_shards=8)))

    assert opened.settings.layout == Layout()
