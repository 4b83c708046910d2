"""The workbench starts without torch's compiler, and who needs the compiler later gets the real one."""

import subprocess
import sys

_WITHOUT = """
import sys
import csml.explorer.explore, csml.explorer.opening, csml.explorer.server
from csml.models.backbones import build_backbone
build_backbone("timm:tf_efficientnet_lite0")
print(*sorted(name for name in sys.modules if name.startswith(("torch._dynamo", "torch._inductor"))))
"""
_LATER = """
import csml.api.evaluating
import sys
import lightning_fabric.wrappers, torch, torchvision
plain = torch.nn.Linear(2, 3)
compiled = torch.compile(plain)
assert type(compiled).__module__.startswith("torch._dynamo"), type(compiled)
assert isinstance(compiled, lightning_fabric.wrappers.OptimizedModule)
assert not isinstance(plain, lightning_fabric.wrappers.OptimizedModule)
assert lightning_fabric.wrappers._unwrap_compiled(compiled)[0] is plain
import torch._dynamo.utils
for device in ("cpu", "cuda"):
    expected = torch._dynamo.utils.is_compile_supported(device)
    assert sys.modules["torchvision.ops.roi_align"].is_compile_supported(device) == expected
"""


_EXCLUDED = """
import sys
from csml.light_imports import disable
assert disable(lambda x: x + 1)(2) == 3
import torch
compiling = []
def record(x):
    compiling.append(torch.compiler.is_compiling())
    return x
excluded = disable(record)
compiled = torch.compile(lambda x: excluded(x) + 1, backend="eager")
assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0)) and compiling == [False]
"""


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_compiler_is_not_imported() -> None:
    assert python(_WITHOUT).split() == []


def test_the_compiler_works_when_it_is_imported_later() -> None:
    python(_LATER)


def test_a_function_that_is_excluded_from_compiling_stays_so() -> None:
    python(_EXCLUDED)
