"""The CPU engine's environment: its stand-in for ``sgl_kernel`` is right, and never hides the real one."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from farm.paths import farm_home

HERE = Path(__file__).parent
ENGINE_PYTHON = farm_home() / "envs" / "engine-cpu" / "bin" / "python"
CHECKS = re.findall(r"^def (check_\w+)", (HERE / "kernel_checks.py").read_text(), re.MULTILINE)

pytestmark = pytest.mark.usefixtures("cpu_engine")


def run(*arguments: str, cpu_engine: bool = True, path: Path | None = None) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SGLANG", "PYTHON"))}
    environment["OMP_NUM_THREADS"] = "1"
    if cpu_engine:
        environment["SGLANG_USE_CPU_ENGINE"] = "1"
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    done = subprocess.run(
        [ENGINE_PYTHON, *arguments], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def check_results() -> dict[str, str | None]:
    return json.loads(run(str(HERE / "kernel_checks.py")).splitlines()[-1])


@pytest.mark.parametrize("name", CHECKS)
def test_kernels(name, check_results):
    assert check_results[name] is None, check_results[name]


WHERE = """
import importlib.util
spec = importlib.util.find_spec("sgl_kernel")
print(spec and spec.origin)
"""


def test_the_stand_in_is_served_on_the_cpu_platform_only():
    assert "sglang_cpu_reference" in run("-c", WHERE)
    assert run("-c", WHERE, cpu_engine=False) == "None"


def test_it_is_not_installed_under_the_real_name():
    found = run("-c", "import sysconfig, os; print(os.listdir(sysconfig.get_path('purelib')))")
    assert "sglang_cpu_reference" in found
    assert "'sgl_kernel'" not in found


def test_real_kernels_win(tmp_path):
    (tmp_path / "sgl_kernel").mkdir()
    (tmp_path / "sgl_kernel" / "__init__.py").write_text("__version__ = 'real'")
    assert run("-c", "import sgl_kernel; print(sgl_kernel.__version__)", path=tmp_path) == "real"


def test_real_kernels_win_behind_a_finder_that_came_later(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "sgl_kernel.py").write_text("__version__ = 'editable'")
    program = f"""
import sys
from importlib.machinery import PathFinder
class Later:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return PathFinder.find_spec(name, [{str(tmp_path / "elsewhere")!r}])
sys.meta_path.append(Later)
import sgl_kernel
print(sgl_kernel.__version__)
"""
    assert run("-c", program) == "editable"


def test_spawned_processes_are_served_too(tmp_path):
    script = tmp_path / "spawn.py"
    script.write_text(
        "import multiprocessing\n"
        "def child(queue):\n"
        "    import importlib.util\n"
        "    queue.put(importlib.util.find_spec('sgl_kernel').origin)\n"
        "if __name__ == '__main__':\n"
        "    context = multiprocessing.get_context('spawn')\n"
        "    queue = context.Queue()\n"
        "    process = context.Process(target=child, args=(queue,))\n"
        "    process.start()\n"
        "    print(queue.get(timeout=60))\n"
        "    process.join()\n"
    )
    assert "sglang_cpu_reference" in run(str(script))


def test_submodules_that_the_stand_in_lacks_are_import_errors():
    program = """
import sgl_kernel.speculative, sgl_kernel.mamba
try:
    import sgl_kernel.kvcacheio
except ImportError:
    print("ok")
"""
    assert run("-c", program) == "ok"


def test_torchvision_imports():
    assert run("-c", "import torchvision.transforms; print(torchvision.__version__)").startswith("0.28.0")


def test_the_plugin_is_found_and_idle_off_the_cpu_platform():
    program = """
from importlib.metadata import entry_points
import sys
[plugin] = [p for p in entry_points(group="sglang.srt.plugins") if p.name == "cpu_reference"]
plugin.load()()
print(any(name.startswith("sglang.") for name in sys.modules))
"""
    assert run("-c", program, cpu_engine=False) == "False"
