"""Run by the engine's own interpreter: `python -c SOURCE [--import]`; prints what it has as JSON.

Standard library only, for any Python from 3.10 on. `--import` also imports torch and sgl_kernel, which takes seconds.
"""

import importlib
import importlib.metadata
import json
import platform
import sys


def main() -> None:
    """Print the report."""
    installed: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"]
        if name:
            installed.setdefault(name.lower().replace("_", "-"), distribution.version)
    plugins = [entry.name for entry in importlib.metadata.entry_points(group="sglang.srt.plugins")]
    report: dict[str, str | dict[str, str] | list[str] | None] = {
        "python": platform.python_version(),
        "installed": installed,
        "plugins": plugins,
    }
    if "--import" in sys.argv[1:]:
        report["sgl_kernel_error"] = _import_error("sgl_kernel")
        report["torch_error"] = _import_error("torch")
        if report["torch_error"] is None:
            torch = sys.modules["torch"]
            report["torch_cuda"] = torch.version.cuda
            report["gpu"] = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    print(json.dumps(report))


def _import_error(name: str) -> "str | None":
    try:
        importlib.import_module(name)
    except Exception as error:  # whatever a package throws while it is imported
        return (str(error).strip().splitlines() or [type(error).__name__])[0]
    return None


if __name__ == "__main__":
    main()
