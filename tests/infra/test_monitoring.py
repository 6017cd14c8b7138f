"""What a running sweep exports through Ray is what the dashboard asks for."""

import json
import re
import subprocess
import sys
import urllib.request

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from support import REPOSITORY, sweep_command

from farm.driver.prometheus import ENGINE_GAUGES, engine_figures
from farm.results.measures import ANSWERS, ERRORS, OF_ANSWERS, Kept

DASHBOARD = REPOSITORY / "infra" / "monitoring" / "dashboard.json"
PORTS = (
    "import ray, json; ray.init(address='auto', log_to_driver=False, logging_level='error');"
    "print(json.dumps([[n['NodeManagerAddress'], n['MetricsExportPort']] for n in ray.nodes() if n['Alive']]))"
)
SWEEP = {
    "name": "watched",
    "model": {"path": "inclusionAI/Ling-3.0-flash-fp4"},
    "engine": {"kind": "emulated", "args": {"emulation-speed": 100}},
    "variants": [
        "baseline",
        "nextn",
        # Drafts are never accepted and nothing says so: the gate ends this one.
        {"name": "broken", "parts": ["nextn"], "env": {"FARM_EMULATION_FAULTS": '{"silent_fallback": true}'}},
    ],
    "workloads": {"synthetic": {"kind": "synthetic", "requests": 12, "input_tokens": 512, "output_tokens": 1024}},
}


def asked_for():
    """The farm's metrics in the dashboard's queries."""
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    queries = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    return set(re.findall(r"ray_farm_\w+", " ".join(queries)))


@pytest.fixture(scope="module")
def seen(ray_cluster, tmp_path_factory):
    """All samples that the nodes' metrics ports gave while a sweep ran, and its complete output."""
    folder = tmp_path_factory.mktemp("watched")
    (folder / "watched.yaml").write_text(yaml.safe_dump(SWEEP))
    env = ray_cluster.env | {"FARM_HOME": str(folder), "MLFLOW_TRACKING_URI": ""}
    requested = subprocess.run([sys.executable, "-c", PORTS], env=env, capture_output=True, text=True, check=True)
    places = json.loads(requested.stdout.splitlines()[-1])
    samples = {}
    with open(folder / "output.txt", "wb") as output:
        sweep = subprocess.Popen(sweep_command(folder / "watched.yaml"), env=env, stdout=output, stderr=output)
        try:
            while True:
                ended = sweep.poll() is not None
                for address, port in places:
                    with urllib.request.urlopen(f"http://{address}:{port}/metrics", timeout=30) as reply:
                        for family in text_string_to_metric_families(reply.read().decode()):
                            for one in family.samples:
                                if one.name.startswith("ray_farm_") and one.labels["sweep"].startswith("watched-"):
                                    key = tuple(one.labels.get(name) for name in ("node", "variant", "workload"))
                                    samples.setdefault(one.name, {}).setdefault(key, []).append(one.value)
                if ended:
                    break
        finally:
            sweep.kill()
            sweep.wait()
    return samples, (folder / "output.txt").read_text()


def test_every_metric_of_the_dashboard_is_exported(seen):
    samples, output = seen
    ours = {f"ray_{name}" for name in ENGINE_GAUGES.values()}
    assert asked_for() - ours <= set(samples), output[-3000:]
    assert ours >= {name for name in asked_for() if "sglang" in name}


def test_answers_are_counted_by_every_measure_of_the_table(seen):
    samples, _ = seen
    for measure in (ANSWERS, ERRORS, *OF_ANSWERS):
        assert f"ray_{measure.series}{'_total' if measure.kept is Kept.COUNTER else ''}" in samples
    decoded = sum(max(values) for values in samples["ray_farm_decode_tokens_total"].values())
    assert 0 < decoded <= 2 * 12 * 1023
    assert {value for values in samples["ray_farm_cached_tokens"].values() for value in values} == {0.0}


def test_cells_and_engines_are_counted_by_node_and_variant(seen):
    samples, output = seen
    assert max(samples["ray_farm_cells"][None, None, None]) == 3 * 12
    assert max(samples["ray_farm_cells_answered"][None, None, None]) > 0
    engines = samples["ray_farm_engine_state"]
    assert {node for node, _, _ in engines} == {"one", "two"}
    assert {variant for _, variant, _ in engines} == {"baseline", "nextn", "broken"}
    last = {variant: values[-1] for (_, variant, _), values in engines.items()}
    assert last == {"baseline": 0, "nextn": 0, "broken": -1}, output
    assert set(samples["ray_farm_cells_done_total"]) <= {
        (node, variant, "synthetic") for node in ("one", "two") for variant in ("baseline", "nextn")
    }
    failures = samples["ray_farm_gate_failures"]
    assert max(value for (_, variant, _), values in failures.items() for value in values if variant == "broken") >= 1
    assert {value for (_, variant, _), values in failures.items() for value in values if variant != "broken"} == {0}


def test_a_gpu_is_told_by_what_the_records_carry(seen):
    """The emulated Spark reads 45 W and its full clock; nothing is slow."""
    samples, _ = seen
    assert {value for values in samples["ray_farm_gpu_power_w"].values() for value in values} == {45.0}
    assert {value for values in samples["ray_farm_gpu_slow_records"].values() for value in values} == {0.0}
    for name in ("ray_farm_gpu_sm_clock_mhz", "ray_farm_gpu_energy_joules_total"):
        assert {variant for _, variant, _ in samples[name]} == {"baseline", "nextn"}


def test_an_engines_own_numbers_are_found(demo_engine):
    """Real SGLang names them as `ENGINE_GAUGES` does, once it has generated something."""
    url, key = demo_engine.engine.process.url, demo_engine.engine.process.api_key
    request = urllib.request.Request(f"{url}/metrics", headers={"Authorization": f"Bearer {key}"})
    with urllib.request.urlopen(request, timeout=30) as reply:
        figures = engine_figures(reply.read().decode())
    assert set(figures) == set(ENGINE_GAUGES)
    assert figures["sglang:generation_tokens_total"] > 0
    assert engine_figures("") == {}
    assert engine_figures("sglang:gen_throughput x\n") == {}
