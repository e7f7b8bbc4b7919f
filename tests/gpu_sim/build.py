"""Compiles the simulated CUDA runtime against the headers of torch's CUDA wheel: ``python -m tests.gpu_sim.build``.

Run by the Python of an environment with that wheel and ``nvidia-cuda-crt`` (``make sim`` makes it). Needs gcc.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

RUNTIME = Path(__file__).parent / "runtime"
#: Where the libraries of an environment lie, below its folder.
PLACE = Path("gpu_sim")
#: The library that is loaded for each, and the sources of it that are not `lib*.c` themselves.
LIBRARIES = {"libsimcuda.so": None, "libcuda.so.1": "libcuda.c", "libnvidia-ml.so.1": "libnvml.c"}
_FLAGS = ("-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-std=gnu11")


def headers() -> list[Path]:
    """Folders with the headers of CUDA's wheels, ours (what the wheels lack) last.

    Raises:
        SystemExit: there are none.
    """
    wheels = Path(sysconfig.get_paths()["purelib"]) / "nvidia"
    found = {path.parent for name in ("cuda_runtime_api.h", "cublas_v2.h") for path in wheels.rglob(name)}
    found |= {path.parent.parent for path in wheels.rglob("crt/host_config.h")}
    if not found or not any(wheels.rglob("crt/host_config.h")):
        raise SystemExit(f"no CUDA headers below {wheels}: install torch's CUDA wheel and nvidia-cuda-crt")
    return [*sorted(found), RUNTIME / "include"]


def build(place: Path) -> None:
    """Compile every library into ``place``. Raises CalledProcessError with gcc's message on stderr."""
    place.mkdir(parents=True, exist_ok=True)
    include = [f"-I{folder}" for folder in headers()]
    alone = {source for source in LIBRARIES.values() if source}
    for name, source in LIBRARIES.items():
        sources = [source] if source else sorted(path.name for path in RUNTIME.glob("*.c") if path.name not in alone)
        subprocess.run(
            ["gcc", *_FLAGS, *include, f"-Wl,-soname,{name}", "-o", str(place / name), *sources, "-lpthread"],
            cwd=RUNTIME,
            check=True,
        )


if __name__ == "__main__":
    build(Path(sys.prefix) / PLACE)
