"""The gate at work in an engine slot: a variant that is not really on yields its reason and evidence, and no record."""

from __future__ import annotations

import asyncio
import itertools
import json
import socket

import pytest

from farm.engines import process
from farm.engines.emulated.arguments import VERSION
from farm.node.messages import Answered, Assignment, EngineReady, EngineReport, EngineStarting, SessionFailed
from farm.node.slot import EngineSlot
from farm.results.describe import grid_of
from farm.results.origin import Origin
from farm.spec.models import Sweep
from farm.workloads.build import build

pytestmark = pytest.mark.engine
SLOWEST = {"emulation-speed": 200, "emulation-start-speed": 1000}
FAULTY = {"FARM_EMULATION_FAULTS": json.dumps({"silent_fallback": True})}


WORKLOAD = {"kind": "synthetic", "requests": 2, "input_tokens": 32, "output_tokens": 8}


def events_of(variants, attempts=(), workload=WORKLOAD, warmup_requests=0, phases=False, origins=(), **engine):
    """What a slot yields for each variant of a small emulated sweep, the phases of starts only where they are asked
    for; `attempts` are the cells' earlier attempts."""
    sweep = Sweep.model_validate(
        {
            "name": "gate",
            "model": {"path": "/nowhere-but-emulated"},
            "engine": {"kind": "emulated", "device": "cpu", "args": SLOWEST} | engine,
            "variants": variants,
            "workloads": {"w": workload},
            "warmup_requests": warmup_requests,
        }
    )
    items = build(sweep.workloads)
    by_id = {name: {i.item_id: i for i in entries} for name, entries in items.items()}
    assignment = Assignment("gate", sweep, by_id, origins)
    slot = EngineSlot("one", "this machine", assignment)

    async def collect():
        found = {}
        grid = grid_of(sweep, items)
        for variant in grid.variants:
            cells = list(grid.cells_of(variant))
            slot_events = slot.run(variant, cells, cells, dict(zip(cells, attempts, strict=False)))
            found[variant] = []
            async for event in slot_events:
                if phases or not isinstance(event, EngineStarting | EngineReady):
                    found[variant].append(event)
                slot.finish()
        return found

    return asyncio.run(collect())


def test_a_variant_that_is_not_active_yields_no_record_and_the_others_go_on(farm_home):
    events = events_of(
        [
            {"name": "plain", "args": {"moe-runner-backend": "flashinfer_mxfp4"}},
            {"name": "fallen", "args": {"moe-runner-backend": "humming"}, "env": FAULTY},
            {"name": "humming", "args": {"moe-runner-backend": "humming"}},
        ]
    )
    for variant in ("plain", "humming"):
        records = [event.record for event in events[variant] if isinstance(event, Answered)]
        assert [record.error for record in records] == [None, None]
        (started, *_) = (event.values for event in events[variant] if isinstance(event, EngineReport))
        assert started.status == "started"
        assert started.facts.evidence.source == "processes"
        assert started.facts.evidence.probe.tokens == 64
    report, failure = events["fallen"]
    assert isinstance(report, EngineReport)
    assert isinstance(failure, SessionFailed)
    assert report.values.status == "not-active"
    assert "experts run on flashinfer_mxfp4" in report.values.reason == failure.reason
    assert report.values.evidence.processes[0].models
    assert report.log


@pytest.mark.parametrize("fault", [{"impossible_counts_after": 1}, {"truncate_after": 1}])
def test_an_engine_that_breaks_in_the_probe_is_a_failed_start(farm_home, fault):
    """The first generation proves that it is ready, the second is the probe."""
    events = events_of([{"name": "broken", "env": {"FARM_EMULATION_FAULTS": json.dumps(fault)}}])
    report, failure = events["broken"]
    assert report.values.status == "failed"
    assert isinstance(failure, SessionFailed)


def test_a_port_that_was_taken_meanwhile_is_a_failed_start_and_the_next_try_works(farm_home, monkeypatch):
    """Between the choice of a free port and the engine's own bind another process may be quicker."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        ports = itertools.chain([other.getsockname()[1]], iter(process._free_port, None))
        monkeypatch.setattr(process, "_free_port", lambda: next(ports))
        events = events_of([{"name": "first"}, {"name": "second"}])
    report, failure = events["first"]
    assert report.values.status == "failed"
    assert "address already in use" in report.values.reason.lower()
    assert not failure.not_retryable
    assert sum(isinstance(event, Answered) for event in events["second"]) == 2


def test_attempts_elsewhere_count_and_what_took_two_nodes_is_not_asked_again(farm_home):
    events = events_of([{"name": "plain"}], attempts=(1, 2))
    once, never = [event.record for event in events["plain"] if isinstance(event, Answered)]
    assert (once.attempts, once.error) == (2, None)
    assert never.attempts == 2
    assert "2 engines or nodes were lost" in never.error
    assert never.completion_tokens == 0


def test_a_stint_that_ends_amid_a_cell_tells_its_attempts(farm_home, monkeypatch):
    """The engine dies of its first request, and the next one does not start."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        ports = iter([process._free_port(), other.getsockname()[1]])
        monkeypatch.setattr(process, "_free_port", lambda: next(ports))
        # A start takes two generations: the readiness test and the probe.
        events = events_of([{"name": "dies", "env": {"FARM_EMULATION_FAULTS": json.dumps({"crash_after": 2})}}])
    assert not [event for event in events["dies"] if isinstance(event, Answered)]
    failure = events["dies"][-1]
    assert [(cell.item_id, attempts) for cell, attempts in failure.attempts.items()] == [("synthetic-0000", 1)]


def test_a_prompt_that_the_engine_refuses_is_an_error_record_and_the_others_are_answered(farm_home, tmp_path):
    """The longest prompt is the one that engines are warmed up with."""
    prompts = tmp_path / "prompts.jsonl"
    texts = ["How many?", "How much? " * 4000, "How often?"]
    prompts.write_text("".join(json.dumps({"id": f"p{n}", "prompt": text}) + "\n" for n, text in enumerate(texts)))
    events = events_of(
        [{"name": "plain", "args": {"context-length": 4096}}],
        workload={"kind": "prompts", "file": str(prompts), "sampling": {"max_new_tokens": 8}},
        warmup_requests=2,
    )
    errors = {event.record.item_id: event.record.error for event in events["plain"] if isinstance(event, Answered)}
    assert {name for name, error in errors.items() if error is None} == {"p0", "p2"}
    assert "context length" in errors["p1"]


def test_an_engine_that_dies_in_its_warm_up_is_a_failed_stint_that_says_so(farm_home):
    # A start takes two generations: the readiness test and the probe.
    faults = {"FARM_EMULATION_FAULTS": json.dumps({"crash_after": 2})}
    events = events_of([{"name": "frail", "env": faults}], warmup_requests=1)
    assert not [event for event in events["frail"] if isinstance(event, Answered)]
    failure = events["frail"][-1]
    assert isinstance(failure, SessionFailed)
    assert "failed its warm-up: the engine died" in failure.reason
    assert failure.attempts == {}


@pytest.mark.parametrize("fault", ["crash", "hang", "malformed", "truncate", "error", "impossible_counts"])
def test_an_engine_that_fails_beside_other_requests_costs_no_answer(farm_home, fault):
    faults = {"FARM_EMULATION_FAULTS": json.dumps({f"{fault}_after": 5, "launches": [0]})}
    events = events_of(
        [{"name": "broken", "env": faults}],
        workload=WORKLOAD | {"requests": 12, "output_tokens": 200, "prefix_cache": "keep"},
        concurrency=4,
        stall_timeout_s=3,
    )
    records = [event.record for event in events["broken"] if isinstance(event, Answered)]
    assert sorted(record.item_id for record in records) == [f"synthetic-{n:04d}" for n in range(12)]
    assert [record.error for record in records] == [None] * 12
    assert {record.attempts for record in records} == {1, 2}
    assert not isinstance(events["broken"][-1], SessionFailed)


def test_a_poison_item_takes_none_with_it_that_is_asked_beside_it(farm_home, tmp_path):
    prompts = tmp_path / "prompts.jsonl"
    texts = ["How many?", "How much?", "Tell me the deadly secret.", "How often?", "How far?", "How long?"]
    prompts.write_text("".join(json.dumps({"id": f"p{n}", "prompt": text}) + "\n" for n, text in enumerate(texts)))
    events = events_of(
        [{"name": "plain", "env": {"FARM_EMULATION_FAULTS": json.dumps({"poison": "deadly secret"})}}],
        workload={"kind": "prompts", "file": str(prompts), "sampling": {"max_new_tokens": 400}, "prefix_cache": "keep"},
        concurrency=4,
    )
    records = {event.record.item_id: event.record for event in events["plain"] if isinstance(event, Answered)}
    assert len(records) == 6
    assert [name for name, record in records.items() if record.error] == ["p2"]
    assert records["p2"].attempts == 2


COLD = {"FARM_EMULATION_FAULTS": json.dumps({"cold_s": 1.2})}


def test_a_start_tells_its_phases_in_order_before_the_first_record(farm_home):
    events = events_of([{"name": "plain"}], warmup_requests=1, phases=True)["plain"]
    starting = [event for event in events if isinstance(event, EngineStarting)]
    names = [event.phase.name for event in starting]
    for earlier, later in itertools.pairwise(
        ["generating its first tokens", "proving that the variant is active", "tokenizing prompts", "warming up"]
    ):
        assert names.index(earlier) < names.index(later)
    assert [event.elapsed_s for event in starting] == sorted(event.elapsed_s for event in starting)
    (ready,) = (event for event in events if isinstance(event, EngineReady))
    assert ready.took_s >= starting[-1].elapsed_s
    first_record = next(number for number, event in enumerate(events) if isinstance(event, Answered))
    assert max(events.index(ready), events.index(starting[-1])) < first_record
    last = [event for event in events if isinstance(event, EngineReport)][-1]
    assert last.values.ready_s == ready.took_s


def test_kernels_that_are_compiled_in_a_start_need_only_its_patience(farm_home):
    """First tokens, probe and warm-up take longer than a measured request may, and cost neither engine nor attempt."""
    impatient = {"request_timeout_s": 1, "stall_timeout_s": 0.25, "start_timeout_s": 60}
    events = events_of([{"name": "cold", "env": COLD}], warmup_requests=1, **impatient)["cold"]
    records = [event.record for event in events if isinstance(event, Answered)]
    assert [(record.error, record.attempts) for record in records] == [(None, 1)] * 2
    assert [event.values.status for event in events if isinstance(event, EngineReport)] == ["started", "stopped"]


def test_a_start_that_is_too_slow_names_the_setting_that_ends_it(farm_home):
    events = events_of([{"name": "cold", "env": COLD}], start_timeout_s=1)["cold"]
    assert "engine.start_timeout_s" in events[-1].reason


def test_an_engine_of_another_origin_than_the_records_is_ended_before_it_is_asked(farm_home):
    plain = [{"name": "plain"}]
    earlier = Origin(versions={"sglang": "0.5.0"})
    *reports, failure = events_of(plain, origins=(earlier,))["plain"]
    assert isinstance(failure, SessionFailed)
    assert failure.not_retryable
    assert "sglang: 0.5.0 ->" in failure.reason
    assert [report.values.status for report in reports] == ["failed"]
    same = Origin(versions={"sglang": VERSION})
    events = events_of(plain, origins=(earlier, same))["plain"]
    assert sum(isinstance(event, Answered) for event in events) == 2
