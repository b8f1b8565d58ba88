"""Leases behind a URL: one writer at a time, whoever races, dies or loses touch with the storage."""

from __future__ import annotations

import json
import re
import threading
import time
from contextlib import ExitStack, nullcontext, suppress
from types import SimpleNamespace
from typing import Any

import pytest

from plmix_dist import open_store
from plmix_dist.errors import StoreError, StoreLockedError
from plmix_dist.rankings import RankingBlock
from plmix_dist.store import Location, WriteSession, lock, write_partition
from tests.helpers.oracle import PlainRankings, all_damage, full, plan_for, write_store

N_PARTITIONS = 5


def rows_of(number: int) -> PlainRankings:
    """The rows of a numbered partition: the second and the last are larger than any other."""
    count = 3000 if number in (1, N_PARTITIONS - 1) else 20
    orders = [(0, 1, 2), (2, 1, 0), (1, 0, 2), (2, 0, 1)]
    return PlainRankings(3, [full(*orders[(row * row + number) % 4], weight=row + 1.5) for row in range(count)])


def blocks_of(number: int) -> list[RankingBlock]:
    block = rows_of(number).block()
    return [block[:10], block[10:]]


def leases_of(location: Location) -> dict[str, dict[str, Any]]:
    return {key: json.loads(location.read_bytes(key)) for key in location.listing("wip") if lock.is_lock(key)}


def let_it_go_stale(location: Location) -> None:
    """Make the leases look as if their writers had stopped some minutes ago."""
    for key, lease in leases_of(location).items():
        location.write_bytes(key, json.dumps(lease | {"renewed": lease["renewed"] - 300}).encode())


@pytest.mark.parametrize(("token", "is_first"), [("0" * 32, False), ("f" * 32, True)])
def test_lease__of_two_that_begin_at_once_the_smaller_token_waits(
    memory_place: Location, monkeypatch: pytest.MonkeyPatch, token: str, is_first: bool
) -> None:
    other = f"wip/lock-{token}.json"
    record = {"token": token, "who": "another", "renewed": time.time(), "held": False}
    memory_place.write_bytes(other, json.dumps(record).encode())
    # The other one leaves as soon as this writer waits for it.
    monkeypatch.setattr(lock.time, "sleep", lambda _: memory_place.remove(other))
    refused = pytest.raises(StoreLockedError, match=r"began to write .* at the same moment; run this again")
    with nullcontext() if is_first else refused:
        write_store(memory_place, [blocks_of(0)])


@pytest.mark.promise(17)
def test_lease__second_writer_is_refused(memory_place: Location) -> None:
    with WriteSession.begin(memory_place, plan_for(3, 1)):
        (lease,) = leases_of(memory_place).values()
        who = re.escape(lease["who"])
        with pytest.raises(
            StoreLockedError, match=rf"^{who} is writing to {memory_place.url} \(seen 0 s ago\).* after 60 s$"
        ):
            write_store(memory_place, [blocks_of(0)])
        assert list(leases_of(memory_place).values()) == [lease], "the second writer left its key behind"
    assert write_store(memory_place, [blocks_of(0)]).n_rankings == 20
    assert leases_of(memory_place) == {}


def test_lease__stale_one_is_taken_over(memory_place: Location) -> None:
    with WriteSession.begin(memory_place, plan_for(3, 1)):
        let_it_go_stale(memory_place)
        assert write_store(memory_place, [blocks_of(0)]).n_rankings == 20


@pytest.mark.promise(17)
def test_lease__one_that_was_taken_over_is_not_taken_back(
    memory_place: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "_RENEW_SECONDS", 3600)
    taken: list[Any] = []
    take = lock._Lease.take

    def take_and_note(self: Any) -> None:
        taken.append(self)
        take(self)

    monkeypatch.setattr(lock._Lease, "take", take_and_note)
    with ExitStack() as second:
        with WriteSession.begin(memory_place, plan_for(3, 1)):
            (mine,) = leases_of(memory_place)
            # Before the first renewal, as after the machine was suspended.
            let_it_go_stale(memory_place)
            second.enter_context(WriteSession.begin(memory_place, plan_for(3, 1)))
            (theirs,) = leases_of(memory_place)
            assert theirs != mine
            # The first writer wakes up twice to renew its lease, and is then told to stop.
            wakes = iter([False, False, True])
            taken[0].keep_renewing(SimpleNamespace(wait=lambda _: next(wakes)))
            assert list(leases_of(memory_place)) == [theirs], "the first writer took the lease back"
        assert list(leases_of(memory_place)) == [theirs], "the first writer left with the lease of the second"


@pytest.mark.promise(17)
@pytest.mark.parametrize("stopped", ["taken over", "for too long", "taken over, but renewed"])
def test_lease__a_writer_that_lost_it_publishes_nothing(
    memory_place: Location, monkeypatch: pytest.MonkeyPatch, stopped: str
) -> None:
    plan = plan_for(3, 1)
    with ExitStack() as both:
        session = both.enter_context(WriteSession.begin(memory_place, plan))
        write_partition(session.pending()[0], blocks_of(0))
        ((key, mine),) = leases_of(memory_place).items()
        if stopped == "for too long":
            later = time.time() + 61
            monkeypatch.setattr(lock.time, "time", lambda: later)
        else:
            let_it_go_stale(memory_place)
            both.enter_context(WriteSession.begin(memory_place, plan))
            if stopped == "taken over, but renewed":  # after the other had looked
                memory_place.write_bytes(key, json.dumps(mine).encode())
        with pytest.raises(StoreLockedError, match=r"lost its lease on .*nothing was published"):
            session.finalise()
        assert not memory_place.exists("manifest.json")


@pytest.mark.promise(17)
@pytest.mark.parametrize("append", [False, True])
def test_publish__not_over_what_another_has_published(
    memory_place: Location, monkeypatch: pytest.MonkeyPatch, append: bool
) -> None:
    """The last resort, where leases fail: the clock of a machine is wrong by minutes."""
    if append:
        write_store(memory_place, [blocks_of(0)], name="first")
    with WriteSession.begin(memory_place, plan_for(3, 1, name="late"), append=append) as session:
        write_partition(session.pending()[0], blocks_of(0))
        other = WriteSession(memory_place, session.plan)
        other.lock = lock.HeldLock()
        other.base = session.base
        published = other.finalise().manifest
        memory_place.write_bytes("wip/plan.json", session.plan.to_bytes())
        monkeypatch.setattr(lock._Lease, "check", lambda self: None)
        with pytest.raises(StoreLockedError, match="another process has published rankings at"):
            session.finalise({"note": "mine"})
    assert open_store(memory_place).manifest == published


def race(location: Location, n_writers: int) -> int:
    """Let writers ask for the lease at once; gives how many held it. It is an error if two held it together."""
    inside, most, total = 0, 0, 0
    count, start = threading.Lock(), threading.Barrier(n_writers)

    def write() -> None:
        nonlocal inside, most, total
        start.wait()
        with suppress(StoreLockedError), lock.write_lock(location) as held:
            with count:
                inside, total = inside + 1, total + 1
                most = max(most, inside)
            time.sleep(0.02)
            held.check()
            with count:
                inside -= 1

    threads = [threading.Thread(target=write) for _ in range(n_writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most <= 1, "two writers held the lease together"
    return total


@pytest.mark.promise(17)
def test_lease__writers_that_race_in_memory(memory_place: Location) -> None:
    # Nothing in fsspec's memory is conditional: a key that is created is looked for first and written then.
    assert min(race(memory_place, 4) for _ in range(50)) >= 1
    assert memory_place.listing() == []


@pytest.mark.promise(17)
def test_lease__writers_that_race_behind_s3(s3_place: Location) -> None:
    assert min(race(s3_place, 3) for _ in range(15)) >= 1
    assert s3_place.listing() == []


@pytest.mark.promise(17)
@pytest.mark.parametrize("kind", ["memory", "s3"])
def test_lease__stores_that_race_for_one_place(request: pytest.FixtureRequest, kind: str) -> None:
    """Two writers of other rankings: one of them makes the store, whole, and the other is refused."""
    first: Location = request.getfixturevalue(f"{kind}_place")
    for number in range(20 if kind == "memory" else 5):
        place = first.sibling(f"-{number}")
        outcomes: dict[str, str] = {}
        start = threading.Barrier(2)

        def write(name: str, start: Any = start, place: Location = place, outcomes: Any = outcomes) -> None:
            start.wait()
            try:
                write_store(place, [blocks_of(0)[: 1 if name == "one" else 2]], name=name)
                outcomes[name] = "made"
            except StoreError as error:
                outcomes[name] = type(error).__name__

        threads = [threading.Thread(target=write, args=(name,)) for name in ("one", "two")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        store = open_store(place)
        made = [name for name, outcome in outcomes.items() if outcome == "made"]
        assert len(made) == 1, outcomes
        assert set(outcomes.values()) <= {"made", "StoreLockedError", "StoreExistsError"}
        assert store.manifest.history[0]["settings"]["name"] == made[0]
        assert store.n_rankings == {"one": 10, "two": 20}[made[0]]
        assert all_damage(store) == []


@pytest.mark.promise(17)
def test_lease__read_by_all_before_any_writes(memory_place: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order that lets two writers in, where each looks before it puts its own key there."""
    both_have_written = threading.Barrier(2, timeout=120)
    renew = lock._Lease._renew

    def slowly(self: Any, *, held: bool) -> None:
        renew(self, held=held)
        if not held:
            both_have_written.wait()

    monkeypatch.setattr(lock._Lease, "_renew", slowly)
    assert race(memory_place, 2) == 1


def test_lease__is_renewed_while_it_is_held(memory_place: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "_RENEW_SECONDS", 0.02)
    with WriteSession.begin(memory_place, plan_for(3, 1)):
        ((key, first),) = leases_of(memory_place).items()
        deadline = time.monotonic() + 60
        while leases_of(memory_place)[key]["renewed"] <= first["renewed"]:
            assert time.monotonic() < deadline, "the lease was not renewed"
            time.sleep(0.01)
        assert leases_of(memory_place)[key]["token"] == first["token"]


@pytest.mark.promise(17)
@pytest.mark.parametrize("name", ["lock.json", "lock-0a.json"])
def test_lease__that_cannot_be_read_is_no_licence_to_write(memory_place: Location, name: str) -> None:
    memory_place.write_bytes(f"wip/{name}", b"{not json")
    with pytest.raises(StoreLockedError, match=rf"{memory_place.url}/wip/{name} cannot be read"):
        write_store(memory_place, [blocks_of(0)])
    assert memory_place.listing() == [f"wip/{name}"]


@pytest.mark.promise(17)
def test_create__behind_s3_only_one_of_many(s3_place: Location) -> None:
    won: list[int] = []

    def create(number: int) -> None:
        with suppress(FileExistsError):
            s3_place.create_bytes("manifest.json", str(number).encode())
            won.append(number)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert s3_place.read_bytes("manifest.json") == str(won[0]).encode()
    assert len(won) == 1
    s3_place.create_bytes("manifest.json", str(won[0]).encode())  # as a request that was sent twice


BLOCK = RankingBlock.from_array([[0, 1, 2], [2, 1, 0]])


@pytest.mark.promise(17)
@pytest.mark.parametrize(("age", "refused"), [(30, True), (59, True), (61, False)])
def test_lease__lasts_for_a_minute(
    memory_place: Location, monkeypatch: pytest.MonkeyPatch, age: float, refused: bool
) -> None:
    monkeypatch.setattr(lock, "_RENEW_SECONDS", 3600)
    with WriteSession.begin(memory_place, plan_for(3, 1)):
        later = time.time() + age
        monkeypatch.setattr(lock, "time", SimpleNamespace(time=lambda: later))
        if refused:
            with pytest.raises(StoreLockedError, match="is writing to"):
                WriteSession.begin(memory_place, plan_for(3, 1)).__enter__()
        else:
            write_store(memory_place, [[BLOCK]])


def test_lease__is_renewed_often_enough() -> None:
    # Two renewals may fail or be late before the lease ends.
    assert 3 * lock._RENEW_SECONDS < lock.LEASE_SECONDS
    waits: list[float] = []

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        return True

    lock._Lease.keep_renewing(SimpleNamespace(), SimpleNamespace(wait=wait))  # type: ignore[arg-type]
    assert waits == [lock._RENEW_SECONDS]
