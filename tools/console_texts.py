"""List the English texts of the console's pages that a catalogue lacks, and those it has too many.

python tools/console_texts.py [LANGUAGE]
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

STATIC = Path(__file__).parents[1] / "src" / "rocketq" / "console" / "static"
_CALL = re.compile(r"""\bt\((?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)")""")


def texts() -> set[str]:
    """All texts in calls of `t`."""
    found = set()
    for path in STATIC.rglob("*.js"):
        for single, double in _CALL.findall(path.read_text()):
            found.add(re.sub(r"\\(.)", r"\1", single or double))
    return found


def main() -> None:
    language = sys.argv[1] if len(sys.argv) > 1 else "zh"
    known = set(json.loads((STATIC / "i18n" / f"{language}.json").read_text()))
    print(json.dumps(dict.fromkeys(sorted(texts() - known), ""), indent=1, ensure_ascii=False))
    for text in sorted(known - texts()):
        print(f"unused: {text!r}", file=sys.stderr)


if __name__ == "__main__":
    main()
