"""Compile the kernels when the engine is installed or built, where there is a compiler.

Without one nothing fails: the wheel is then pure Python, says so while it is built, and runs on
torch alone.
"""

import runpy
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_KERNELS = "nanoserve/kernels"


class KernelBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Puts the compiled libraries into a wheel, or beside their sources for an editable install."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it collects the files of a wheel."""
        # By its path: in an isolated build environment the package itself cannot be imported.
        compiler = runpy.run_path(str(Path(self.root, _KERNELS, "compile.py")))
        editable = version == "editable"
        if editable:
            folder = Path(self.root, _KERNELS)
        else:
            self._scratch = tempfile.TemporaryDirectory()
            folder = Path(self._scratch.name)
        try:
            made = compiler["compile_kernels"](folder)
        except (compiler["CannotCompile"], OSError) as reason:
            self.app.display_warning(f"nanoserve is built without its kernels: {reason}")
            return
        for fault in made.faults:
            self.app.display_warning(f"nanoserve is built without some of its kernels: {fault}")
        self.app.display_info(f"nanoserve's kernels are compiled: {len(made.libraries)} libraries")
        if not editable:
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{platform}"
            for library in made.libraries:
                build_data["force_include"][str(library)] = f"{_KERNELS}/{library.name}"

    def finalize(self, version: str, *_: Any) -> None:
        """Called when the wheel is written."""
        if version != "editable":
            self._scratch.cleanup()
