"""Fail if a file is covered less than PERCENT: .ci/least_covered.py coverage.json PERCENT."""

import json
import sys
from pathlib import Path


def main(report: str, least: str) -> int:
    files = json.loads(Path(report).read_text(encoding="utf-8"))["files"]
    covered = sorted((found["summary"]["percent_covered"], name) for name, found in files.items())
    if not covered:
        print("nothing was measured")
        return 1
    below = [(percent, name) for percent, name in covered if percent < float(least)]
    for percent, name in below:
        lines = ", ".join(map(str, files[name]["missing_lines"]))
        print(f"{name}: {percent:.1f} %, at least {least} % wanted; lines {lines}")
    if not below:
        print(f"{len(covered)} files; the least covered: {covered[0][1]}, {covered[0][0]:.1f} %")
    return 1 if below else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
