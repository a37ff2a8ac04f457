#!/usr/bin/env python3
"""Compile ROS 2 interface packages into the virtual environment, with the C and C++ compilers alone (no CMake).

    .venv/bin/python tools/build_interfaces.py interfaces/tf2_msgs interfaces/grid_map_msgs

Each folder holds msg/*.msg and srv/*.srv; the folder's name is the package's name. The package becomes importable
(`from tf2_msgs.msg import TFMessage`) only when all of it was built: it is made beside and renamed into place.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PREFIX = Path(sys.prefix)
SHARE, LIB, INCLUDE = PREFIX / "share", PREFIX / "lib", PREFIX / "include"

# The libraries of one interface package, in the order in which each needs those before it.
GENERATOR, FASTRTPS, INTROSPECTION, TYPESUPPORT = (
    "rosidl_generator_c",
    "rosidl_typesupport_fastrtps_c",
    "rosidl_typesupport_introspection_c",
    "rosidl_typesupport_c",
)
KINDS = ("msg", "srv")
RUNTIME_LIBRARIES = (
    "rosidl_runtime_c",
    "rosidl_typesupport_c",
    "rosidl_typesupport_fastrtps_c",
    "rosidl_typesupport_fastrtps_cpp",
    "rosidl_typesupport_introspection_c",
    "rcutils",
    "rmw",
    "fastcdr",
)


class InterfacePackage:
    """One interface package on its way from .msg files to an importable Python package."""

    def __init__(self, source: Path, work: Path) -> None:
        self.source, self.name, self.work = source.resolve(), source.resolve().name, work
        self.generated = work / "generated" / self.name
        self.introspection = work / "introspection" / self.name
        self.typesupport = work / "typesupport" / self.name
        self.python = work / "python" / self.name
        self.idl: list[str] = []

    def build(self) -> None:
        self._convert_to_idl()
        self._generate()
        self._compile_and_link()

    def install(self, site_packages: Path) -> None:
        """Replace the installed package in one rename, so that an interruption leaves the old one or the new one."""
        staged, target = site_packages / f".{self.name}.new", site_packages / self.name
        shutil.rmtree(staged, ignore_errors=True)
        shutil.copytree(self.python, staged, ignore=shutil.ignore_patterns("*.c", "*.h"))
        shutil.rmtree(target, ignore_errors=True)
        staged.rename(target)

    def _convert_to_idl(self) -> None:
        from rosidl_adapter import convert_to_idl

        definitions = sorted(
            path.relative_to(self.source) for kind in KINDS for path in (self.source / kind).glob(f"*.{kind}")
        )
        if not definitions:
            raise SystemExit(f"build_interfaces: no msg/*.msg or srv/*.srv below {self.source}")
        for definition in definitions:
            convert_to_idl(self.source, self.name, definition, self.work / "idl")
        self.idl = [str(definition.with_suffix(".idl")) for definition in definitions]

    def _arguments(self, label: str, out: Path, template: str | None = None, **extra: object) -> str:
        """Write the JSON argument file that every generator takes; return its path."""
        data: dict[str, object] = {
            "package_name": self.name,
            "output_dir": str(out),
            "idl_tuples": [f"{self.work / 'idl'}:{idl}" for idl in self.idl],
            "ros_interface_dependencies": [],
            "target_dependencies": [],
            **extra,
        }
        if template:
            data["template_dir"] = str(SHARE / template / "resource")
        path = self.work / f"{label}.json"
        path.write_text(json.dumps(data))
        return str(path)

    def _generate(self) -> None:
        import rosidl_typesupport_c
        import rosidl_typesupport_introspection_c
        from rosidl_generator_c import generate_c
        from rosidl_generator_py.generate_py_impl import generate_py
        from rosidl_generator_type_description import generate_type_hash
        from rosidl_typesupport_fastrtps_c import generate_typesupport_fastrtps_c

        hashes = self.work / "hash" / self.name
        include_paths = [f"{name}:{SHARE / name}" for name in installed_interfaces()]
        generate_type_hash(self._arguments("hash", hashes, include_paths=include_paths))
        descriptions = [f"{idl}:{hashes / Path(idl).with_suffix('.json')}" for idl in self.idl]
        generate_c(self._arguments("c", self.generated, GENERATOR, type_description_tuples=descriptions))
        generate_typesupport_fastrtps_c(self._arguments("fastrtps", self.generated, FASTRTPS))
        rosidl_typesupport_introspection_c.generate_c(
            self._arguments("introspection", self.introspection, INTROSPECTION)
        )
        rosidl_typesupport_c.generate_c(
            self._arguments("typesupport", self.typesupport, TYPESUPPORT), [FASTRTPS, INTROSPECTION]
        )
        generate_py(self._arguments("python", self.python, "rosidl_generator_py"), [TYPESUPPORT])
        for generator in (GENERATOR, FASTRTPS, INTROSPECTION):
            self._write_visibility_header(generator)

    def _write_visibility_header(self, generator: str) -> None:
        """CMake would configure this header from its template; the substitution is all there is to it."""
        header = f"{generator}__visibility_control.h"
        text = (SHARE / generator / "resource" / f"{header}.in").read_text()
        text = text.replace("@PROJECT_NAME_UPPER@", self.name.upper()).replace("@PROJECT_NAME@", self.name)
        folder = self.generated / "msg"
        folder.mkdir(exist_ok=True)
        (folder / header).write_text(text)

    def _compile_and_link(self) -> None:
        fastrtps = sorted(self.generated.rglob("*__type_support_c.cpp"))
        dispatch = sorted(self.generated.rglob("*__type_support.c"))
        plain = sorted(set(self.generated.rglob("*.c")) - set(dispatch))
        groups = {
            GENERATOR: plain,
            FASTRTPS: fastrtps,
            INTROSPECTION: sorted(self.introspection.rglob("*.c")),
            TYPESUPPORT: sorted(self.typesupport.rglob("*.c*")) + dispatch,
            "python": sorted(self.python.rglob("*.c")),
        }
        sources = [path for group in groups.values() for path in group]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = dict(zip(sources, pool.map(self._compile, sources), strict=True))
        linked: list[str] = []
        for kind in (GENERATOR, FASTRTPS, INTROSPECTION, TYPESUPPORT):
            own = [objects[path] for path in groups[kind]]
            linked.append(self._link(f"lib{self.name}__{kind}.so", own, linked))
        # The type supports are found by name at run time, so the extension must keep all of them loaded.
        extension = [objects[path] for path in groups["python"]]
        self._link(f"{self.name}_s__{TYPESUPPORT}.so", extension, linked, soname=False)

    def _compile(self, path: Path) -> str:
        out = self.work / "objects" / (path.relative_to(self.work).as_posix().replace("/", "_") + ".o")
        out.parent.mkdir(exist_ok=True)
        compiler = ["g++", "-std=c++17"] if path.suffix == ".cpp" else ["gcc"]
        # -w: the sources are generated, their warnings are nobody's to mend here
        run([*compiler, "-O2", "-fPIC", "-DNDEBUG", "-w", "-c", str(path), "-o", str(out), *self._includes()])
        return str(out)

    def _includes(self) -> list[str]:
        import numpy

        folders = [self.work / name for name in ("generated", "introspection", "typesupport")]
        folders += [Path(sysconfig.get_paths()["include"]), Path(numpy.get_include()), INCLUDE]
        folders += sorted(path for path in INCLUDE.iterdir() if path.is_dir())
        return [f"-I{folder}" for folder in folders]

    def _link(self, name: str, objects: list[str], own: list[str], soname: bool = True) -> str:
        out = str(self.python / name)
        flags = [f"-Wl,-soname,{name}"] if soname else []
        # $ORIGIN: the package's own libraries; three levels up: the environment's lib folder
        flags += ["-Wl,-rpath,$ORIGIN:$ORIGIN/../../.."]
        run(["g++", "-shared", "-o", out, *flags, *objects, "-Wl,--no-as-needed", *own, "-Wl,--as-needed",
             *dependency_libraries()])  # fmt: skip
        return out


def installed_interfaces() -> list[str]:
    """Names of the interface packages that the wheels brought."""
    return sorted(path.name for path in SHARE.iterdir() if list((path / "msg").glob("*.idl")))


def dependency_libraries() -> list[str]:
    kinds = (GENERATOR, FASTRTPS, INTROSPECTION, TYPESUPPORT, "rosidl_generator_py")
    candidates = [LIB / f"lib{package}__{kind}.so" for package in installed_interfaces() for kind in kinds]
    candidates += [LIB / f"lib{name}.so" for name in RUNTIME_LIBRARIES]
    return [str(path) for path in candidates if path.exists()]


def run(command: list[str]) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise SystemExit(f"build_interfaces: {command[0]} failed:\n{' '.join(command)}\n{result.stderr}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Compile ROS 2 interface packages into this environment.")
    parser.add_argument(
        "packages", nargs="+", type=Path, help="folders with msg/ and srv/, named like the package"
    )
    parser.add_argument("--into", type=Path, default=Path(sysconfig.get_paths()["purelib"]))
    arguments = parser.parse_args()
    os.environ["AMENT_PREFIX_PATH"] = str(PREFIX)  # the generators look up their templates by it
    for source in arguments.packages:
        with tempfile.TemporaryDirectory(prefix="interfaces-") as work:
            package = InterfacePackage(source, Path(work))
            package.build()
            package.install(arguments.into)
            print(f"{package.name}: {len(package.idl)} interfaces")


if __name__ == "__main__":
    main()
