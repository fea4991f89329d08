"""Ask for known vulnerabilities of all installed packages, and say which could not be asked about.

pip-audit leaves out what its server does not know (builds of one's own, packages of another index) and ends
without a table if the server does not answer. Here both are said, and it is no success
if nothing could be asked about.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any


def main() -> int:
    command = [
        sys.executable,
        "-m",
        "pip_audit",
        "--skip-editable",
        "--format",
        "json",
        "--progress-spinner",
        "off",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        reason = (done.stderr.strip().splitlines() or ["no answer"])[-1]
        print(f"Could not ask about any package: {reason}")
        return 3
    print("\n".join(report(packages)))
    if all("skip_reason" in package for package in packages):
        return 3
    return 1 if any(package.get("vulns") for package in packages) else 0


def report(packages: list[dict[str, Any]]) -> list[str]:
    """Return a line for each package that is vulnerable or was not asked about, and the counts.

    Examples
    --------
    >>> report([{"name": "a", "version": "1", "vulns": []}, {"name": "b", "skip_reason": "not found"}])
    ['not asked: b (not found)', '1 packages asked about, 0 of them vulnerable, 1 not asked about.']
    """
    asked = [package for package in packages if "skip_reason" not in package]
    bad = [package for package in asked if package["vulns"]]
    lines = [f"not asked: {p['name']} ({p['skip_reason']})" for p in packages if "skip_reason" in p]
    for package in bad:
        known = ", ".join(each["id"] for each in package["vulns"])
        lines.append(f"vulnerable: {package['name']} {package['version']} ({known})")
    counts = f"{len(asked)} packages asked about, {len(bad)} of them vulnerable"
    return [*lines, f"{counts}, {len(packages) - len(asked)} not asked about."]


if __name__ == "__main__":
    raise SystemExit(main())
