"""Which clients may work in a keyspace, by where its copies and its home are."""

from __future__ import annotations

import pytest

from astyqueue.stores.cassandra.connection.settings import Levels
from astyqueue.stores.cassandra.schema.home_data_centre import Client, HomeDataCentre, objection

LOCAL, GLOBAL = Levels(), Levels("quorum", "serial")
TWO = ("dc1", "dc2")
DC1 = HomeDataCentre.of("dc1", LOCAL)


@pytest.mark.parametrize(
    ("copies", "home", "client"),
    [
        ((), None, Client("dc1", LOCAL, chosen=False)),
        (("dc1",), None, Client("dc1", LOCAL, chosen=False)),
        (("dc1",), DC1, Client("dc1", LOCAL, chosen=False)),
        (TWO, None, Client("dc2", LOCAL)),
        (TWO, DC1, Client("dc1", LOCAL)),
        (TWO, DC1, Client("dc1", Levels(reads="local_one"))),
        (TWO, HomeDataCentre.of("dc1", GLOBAL), Client("dc2", GLOBAL, chosen=False)),
        (TWO, None, Client("dc2", GLOBAL, chosen=False)),
    ],
)
def test_a_client_at_home_is_let_in(copies: tuple[str, ...], home: HomeDataCentre | None, client: Client) -> None:
    assert objection("jobs", copies, home, client) is None


@pytest.mark.parametrize(
    ("copies", "home", "client", "told"),
    [
        (TWO, DC1, Client("dc2", LOCAL), "the home of keyspace jobs is data centre dc1, and this client works in dc2"),
        ((), DC1, Client("dc2", LOCAL), "Put dc=dc1 into the URL"),
        (TWO, DC1, Client("dc1", LOCAL, chosen=False), "this client names none of them"),
        (TWO, None, Client("dc1", LOCAL, chosen=False), "run 'astyqueue migrate --home NAME'"),
        (("dc1",), None, Client("dc3", LOCAL), "has no copies in data centre dc3: its copies are in dc1. Put dc=dc1"),
        (
            TWO,
            DC1,
            Client("dc1", GLOBAL),
            "used with consistency=local_quorum&serial=local_serial, and this client has consistency=quorum",
        ),
        (TWO, HomeDataCentre.of("", GLOBAL), Client("dc1", LOCAL), "used with consistency=quorum&serial=serial"),
        (TWO, DC1, Client("dc1", Levels("all")), "this client has consistency=all&serial=local_serial"),
    ],
)
def test_a_client_elsewhere_or_with_other_levels_is_not(
    copies: tuple[str, ...], home: HomeDataCentre | None, client: Client, told: str
) -> None:
    assert told in str(objection("jobs", copies, home, client))


def test_a_home_is_read_as_it_was_stored() -> None:
    assert HomeDataCentre.kept("dc1", DC1.levels) == DC1
    assert str(DC1) == "data centre dc1, consistency=local_quorum, serial=local_serial"
    assert HomeDataCentre.of("dc1", GLOBAL) == HomeDataCentre.kept("", "quorum/serial")
