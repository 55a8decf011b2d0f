"""`astyqueue queues show` and `set`: the settings of a queue, in the words they are set by."""

from __future__ import annotations

import pytest

from tests.unit.cli.conftest import Shell


@pytest.mark.usefixtures("connection")
@pytest.mark.every_store
def test_settings_are_shown_in_the_words_they_are_set_by(shell: Shell) -> None:
    shell("queues", "set", "emails", "lease=7m", "max-attempts=3", "paused=yes")
    [settings] = shell.json("queues", "show", "emails")
    assert (settings["lease"], settings["max_attempts"], settings["paused"]) == ("7m", 3, True)
    assert "lease                 7m\n" in shell("queues", "show", "emails").stdout


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("lease=5x", "lease: '5x' is not a duration"),
        ("overflow-wait=abc", "overflow_wait: 'abc' is not a duration"),
        ("leese=5m", "no setting 'leese'"),
        ("time_shards=3", "fixed when a queue is created"),
        ("max_attempts=0", "max_attempts"),
    ],
)
@pytest.mark.usefixtures("connection")
def test_settings_that_make_no_sense_change_nothing(shell: Shell, setting: str, told: str) -> None:
    before = shell.json("queues", "show", "emails")
    assert told in shell.error("queues", "set", "emails", setting, code=2)
    assert shell.json("queues", "show", "emails") == before


@pytest.mark.usefixtures("connection")
def test_a_setting_that_is_text_is_taken_back_by_an_empty_value(shell: Shell) -> None:
    shell("send", "later", "1", "--create")
    shell("queues", "set", "emails", "overflow_to=later", "overflow=forward")
    shell("queues", "set", "emails", "overflow=refuse", "overflow-to=")
    assert shell.json("queues", "show", "emails")[0]["overflow_to"] == ""
    assert "invalid setting 'lease='" in shell("queues", "set", "emails", "lease=", code=2).stderr


@pytest.mark.usefixtures("connection")
def test_a_setting_that_is_given_twice_changes_nothing(shell: Shell) -> None:
    before = shell.json("queues", "show", "emails")
    told = shell.error("queues", "set", "emails", "lease=5m", "max_attempts=3", "lease=50m", code=2)
    assert told == "Error: lease is given twice: give each setting once"
    assert shell.json("queues", "show", "emails") == before
