"""Whether a ratio that was measured once is lost: `python bench/ratios.py NEW OLD`.

What is compared are ratios of times of one process, which hold from machine to machine of a kind: to each peer that
computes the same, and to the floor. Lines are those of the same operator, shape and types.
"""

import argparse
import json
import pathlib
import sys

TABLES = ("forward", "gradients")
TOLERANCE = 0.1


def lines_of(results, table):
    """The lines of a table that were measured, by what they measure."""
    keys = ("operator", "B", "T", "H", "D", "dtype", "gates")
    measured = [line for line in results.get(table, []) if "to_floor" in line]
    return {tuple(line[key] for key in keys): line for line in measured}


def ratios_of(line):
    """The ratios of a line by name: how many times as fast as the floor and as each peer it is."""
    found = {"the floor": 1 / line["to_floor"]}
    for peer in line["peers"]:
        if peer["same"] and "ratio" in peer:
            found[peer["peer"]] = peer["ratio"]
    return found


def lost(new, old, tolerance=TOLERANCE):
    """What of the old results does not hold in the new ones, a sentence each. What only one of them measured does not
    count, but for an operator that is refused where it ran.
    """
    sentences = []
    for table in TABLES:
        before, after = lines_of(old, table), lines_of(new, table)
        refused = {
            tuple(line[key] for key in ("operator", "B", "T", "H", "D", "dtype", "gates")): line["refused"]
            for line in new.get(table, [])
            if "refused" in line
        }
        for key, line in before.items():
            name = f"{table} of {' '.join(str(part) for part in key)}"
            if key in refused:
                sentences.append(f"{name}: refused ({refused[key]}), where it ran before")
            if key not in after:
                continue
            found = ratios_of(after[key])
            for other, ratio in ratios_of(line).items():
                if other in found and found[other] < ratio * (1 - tolerance):
                    sentences.append(
                        f"{name}: {found[other]:.3g} times as fast as {other}, expected at least"
                        f" {ratio * (1 - tolerance):.3g}: it was {ratio:.3g} at {old.get('commit')}"
                    )
    return sentences


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("new", type=pathlib.Path)
    parser.add_argument("old", type=pathlib.Path)
    parser.add_argument("--tolerance", type=float, default=TOLERANCE)
    options = parser.parse_args()
    sentences = lost(*(json.loads(path.read_text()) for path in (options.new, options.old)), options.tolerance)
    print("\n".join(sentences) or "no ratio is lost")
    sys.exit(1 if sentences else 0)


if __name__ == "__main__":
    main()
