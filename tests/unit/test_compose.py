"""What docker-compose.yml runs are commands that there are; no Docker is needed to know that."""

from __future__ import annotations

import json
import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import click
import pytest

from astyqueue.cli import main
from astyqueue.stores.cassandra.connection.settings import Address
from astyqueue.stores.url import locate
from examples.tasks_app import app, welcome

ROOT = Path(__file__).parents[2]
COMPOSE = (ROOT / "docker-compose.yml").read_text()


def test_what_the_services_run_are_commands_with_options_that_they_have() -> None:
    ran = [json.loads(words) for words in re.findall(r'command: (\["astyqueue", .*\])', COMPOSE)]
    for _, name, *words in ran:
        command = main.get_command(click.Context(main), name)
        assert command is not None
        command.make_context(name, words, resilient_parsing=False)
    assert {words[1] for words in ran} == {"migrate", "worker"}


def test_the_url_of_the_services_is_one_that_the_store_takes() -> None:
    (url,) = re.findall(r"ASTYQUEUE_URL: (\S+)", COMPOSE)
    address = Address.of(locate(url))
    assert (address.contact_points, address.keyspace, address.dc) == (("cassandra",), "demo", "datacenter1")


def test_the_task_that_is_to_be_sent_is_one_of_the_app_that_the_worker_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASTYQUEUE_URL", raising=False)
    assert '["astyqueue", "worker", "examples.tasks_app:app"]' in COMPOSE
    assert app.url is None
    assert f"--task {welcome.name} " in COMPOSE
    assert "send emails" in COMPOSE
    assert "emails" in app.queues


def test_the_url_is_on_no_command_line() -> None:
    assert "--url" not in COMPOSE


def test_the_node_can_be_reached_from_this_machine_only_and_the_worker_is_not_root() -> None:
    assert re.findall(r'- "([\d.]+):\d+:9042"', COMPOSE) == ["127.0.0.1"]
    assert re.findall(r"^ +(?:RUN|USER) .*", COMPOSE, re.MULTILINE)[-1].split() == ["USER", "worker"]


def test_what_the_image_is_built_from_is_listed_and_no_secret_or_store_is_among_it() -> None:
    hidden, *rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    listed = [rule.removeprefix("!") for rule in rules if rule.startswith("!")]
    kept_out = [rule for rule in rules if not rule.startswith("!")]
    assert hidden == "*"
    for secret in (".env", "astyqueue.toml", "jobs.enqueued.json", "mail.db", ".git", ".venv"):
        assert secret not in listed
    for secret in ("examples/.env", "examples/mail.db-wal", "examples/key.pem", "astyqueue/cli/__pycache__"):
        assert any(fnmatch(secret, rule) for rule in kept_out)
    built = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = built["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = [
        *wheel["only-include"],
        *wheel["force-include"],
        *built["project"]["license-files"],
        built["project"]["readme"],
        "pyproject.toml",
    ]
    assert set(needed) <= set(listed)
