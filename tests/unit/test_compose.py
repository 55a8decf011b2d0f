"""What docker-compose.yml runs are commands that there are; no Docker is needed to know that."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click

from astyqueue.cli import main
from astyqueue.stores.cassandra.address import Address
from astyqueue.stores.location import locate
from examples.tasks_app import app, welcome

COMPOSE = (Path(__file__).parents[2] / "docker-compose.yml").read_text()


def test_what_the_services_run_are_commands_with_options_that_they_have() -> None:
    texts = re.findall(r"astyqueue (?:migrate|worker)[^\n\]]*", COMPOSE.replace('", "', " ").replace('"]', ""))
    ran = [shlex.split(text.strip("'").replace('"$$ASTYQUEUE_URL"', "URL").rstrip("'")) for text in texts]
    for _, name, *words in ran:
        command = main.get_command(click.Context(main), name)
        assert command is not None
        command.make_context(name, words, resilient_parsing=False)
    assert {words[1] for words in ran} == {"migrate", "worker"}


def test_the_url_of_the_services_is_one_that_the_store_takes() -> None:
    (url,) = re.findall(r"ASTYQUEUE_URL: (\S+)", COMPOSE)
    address = Address.of(locate(url))
    assert (address.contact_points, address.keyspace, address.dc) == (("cassandra",), "demo", "datacenter1")


def test_the_task_that_is_to_be_sent_is_one_of_the_app_that_the_worker_runs() -> None:
    assert "astyqueue worker examples.tasks_app:app" in COMPOSE
    assert f"--task {welcome.name} " in COMPOSE
    assert "send emails" in COMPOSE
    assert "emails" in app.queues
