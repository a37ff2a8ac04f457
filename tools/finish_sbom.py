"""Make the bill of materials fit to be published: tools/finish_sbom.py FILE (tools/sbom.sh calls it).

Takes out the addresses of local files (the project is installed from its folder), marks what only tests and checks use
as excluded from what is delivered, and checks the result against the CycloneDX schema. Needs the packages of
requirements/sbom.lock.txt.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

REQUIREMENTS = Path(__file__).resolve().parent.parent / "requirements"
DELIVERED = ("build", "run", "ros")


def normalized(name: str) -> str:
    """A package's name as the index compares it: lower case, one kind of separator."""
    return re.sub(r"[-_.]+", "-", name).lower()


def locked(name: str) -> set[str]:
    """Names of the packages in a lock file."""
    text = (REQUIREMENTS / f"{name}.lock.txt").read_text()
    return {normalized(package) for package in re.findall(r"^([\w.-]+)(?:\[.*?\])?==", text, re.MULTILINE)}


def remove_local_addresses(bom: dict[str, Any]) -> None:
    for component in bom["components"]:
        references = [
            item for item in component.get("externalReferences", []) if not item["url"].startswith("file:")
        ]
        if references:
            component["externalReferences"] = references
        else:
            component.pop("externalReferences", None)


def mark_scopes(bom: dict[str, Any]) -> None:
    """Scope 'excluded' for what only dev.lock.txt names, 'required' for the rest."""
    tools = locked("dev").difference(*map(locked, DELIVERED))
    for component in bom["components"]:
        component["scope"] = "excluded" if normalized(component["name"]) in tools else "required"


def schema_error(text: str) -> object:
    """What the CycloneDX schema says against the document; None if it is valid."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    return JsonStrictValidator(SchemaVersion.from_version(json.loads(text)["specVersion"])).validate_str(text)


def main() -> int:
    file = Path(sys.argv[1])
    bom = json.loads(file.read_text())
    remove_local_addresses(bom)
    mark_scopes(bom)
    text = json.dumps(bom, indent=2) + "\n"
    if error := schema_error(text):
        print(f"finish_sbom: {file} is not valid CycloneDX: {error}", file=sys.stderr)
        return 1
    file.write_text(text)
    scopes = [component["scope"] for component in bom["components"]]
    print(
        f"{scopes.count('required')} packages delivered, {scopes.count('excluded')} only for tests and checks"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
