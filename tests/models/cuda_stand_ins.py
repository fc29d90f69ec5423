# SPDX-License-Identifier: Apache-2.0
"""cuda_stand_ins.py: lets a torchvision that was built for CUDA load beside a PyTorch without it.

PyPI has torchvision for Linux with CUDA only; the wheel for the CPU is on download.pytorch.org. Its extension holds the
kernels for the CPU, too, but does not load where libc10_cuda.so, libtorch_cuda.so and libcudart.so are absent. This
makes libraries of those names in the environment it runs in, with what the extension links: registering its kernels for
CUDA does nothing, everything else ends the process with the name of the function. A .pth file loads them when the
interpreter starts. Does nothing where the extension loads by itself.

    build/venv-models/bin/python tests/models/cuda_stand_ins.py
"""
import importlib.util
import subprocess
import sys
import sysconfig
from pathlib import Path

_LIBRARIES = {"libcudart.so.13": ("cuda", "__cuda"), "libc10_cuda.so": ("_ZN3c104cuda", "_ZNK3c104cuda", "_ZN2at4cuda")}
_DATA = ("_ZN3c104cuda20CUDACachingAllocator9allocatorE",)
_QUIET = ("__cudaRegister", "__cudaUnregister", "__cudaInitModule")


def _loads():
    return subprocess.run([sys.executable, "-c", "import torchvision"], capture_output=True).returncode == 0


def _source(names):
    lines = ["#include <stdio.h>", "#include <stdlib.h>"]
    for name in names:
        if name in _DATA:
            lines.append(f"void* {name}[8];")
        elif name.startswith(_QUIET):
            lines.append(f"void* {name}(void) {{ static void* handle[8]; return handle; }}")
        else:
            lines.append(f'void {name}(void) {{ fputs("{name}: there is no CUDA here\\n", stderr); abort(); }}')
    return "\n".join(lines) + "\n"


def main():
    if _loads():
        return
    site = Path(sysconfig.get_path("purelib"))
    extension = Path(importlib.util.find_spec("torchvision").origin).parent / "_C.so"
    symbols = subprocess.run(["nm", "-D", "--undefined-only", extension], capture_output=True, text=True, check=True)
    linked = {line.split()[-1].split("@")[0] for line in symbols.stdout.splitlines()}
    folder = site / "cuda_stand_ins"
    folder.mkdir(exist_ok=True)
    for library, prefixes in [*_LIBRARIES.items(), ("libtorch_cuda.so", ())]:
        source = folder / f"{library}.c"
        source.write_text(_source(sorted(name for name in linked if prefixes and name.startswith(prefixes))))
        version = folder / f"{library}.map"
        version.write_text(f"{library} {{ *; }};\n")
        subprocess.run(
            ["gcc", "-shared", "-fPIC", "-w", f"-Wl,-soname,{library}", f"-Wl,--version-script={version}", source]
            + ["-o", folder / library],
            check=True,
        )
    names = [*_LIBRARIES, "libtorch_cuda.so"]
    (folder / "__init__.py").write_text(
        f"import ctypes\nfor name in {names!r}:\n    ctypes.CDLL(__file__.replace('__init__.py', name))\n"
    )
    (site / "cuda_stand_ins.pth").write_text("import cuda_stand_ins\n")
    if not _loads():
        sys.exit("torchvision does not import, not even with stand-ins for the libraries of CUDA")


if __name__ == "__main__":
    main()
