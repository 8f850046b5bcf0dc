"""Pictures of the tables, beside the results: `python bench/pictures.py bench/results/FILE.json`."""

import importlib.util
import json
import pathlib
import sys

TABLES = ("forward", "gradients")


def label(line):
    return f"{line['operator']}  {','.join(str(line[name]) for name in 'BTHD')}  {line['dtype']}"


def draw(results, path):
    """Draws each table that there is; returns the paths. Without matplotlib, none, and says so."""
    tables = [table for table in TABLES if any("to_floor" in line for line in results.get(table, []))]
    if not tables:
        return []
    if importlib.util.find_spec("matplotlib") is None:
        print(f"There are no pictures: matplotlib is not installed here. Elsewhere: python bench/pictures.py {path}")
        return []
    return [draw_table(results, table, path.with_name(f"{path.stem}-{table}.svg")) for table in tables]


def draw_table(results, table, path):
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    matplotlib.rcParams["svg.hashsalt"] = "stretto"  # the same results give the same file
    lines = [line for line in results[table] if "to_floor" in line]
    rows = range(len(lines))
    figure, (left, right) = plt.subplots(1, 2, figsize=(13, 1.2 + 0.22 * len(lines)), sharey=True, layout="constrained")
    left.barh(rows, [line["to_floor"] for line in lines], color="tab:blue")
    left.axvline(1, color="black", linewidth=0.8)
    left.set(title=f"{table}: time over the floor", xscale="log", yticks=rows, yticklabels=[label(x) for x in lines])
    left.tick_params(axis="y", labelsize=7)
    left.invert_yaxis()
    names = sorted({peer["peer"] for line in lines for peer in line["peers"] if "ratio" in peer})
    for name in names:
        points = [
            (peer["ratio"], row)
            for row, line in enumerate(lines)
            for peer in line["peers"]
            if peer["peer"] == name and "ratio" in peer
        ]
        right.plot(*zip(*points, strict=True), linestyle="none", marker="o", markersize=4, label=name)
    right.axvline(1, color="black", linewidth=0.8)
    right.set(title="time of a peer over ours", xscale="log")
    if names:
        right.legend(fontsize=7)
    for axes in (left, right):
        axes.grid(alpha=0.3, axis="x")
    figure.suptitle(f"{results['machine']['processor']}, commit {results['commit']}, {results['date']}", fontsize=9)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    return path


if __name__ == "__main__":
    file = pathlib.Path(sys.argv[1])
    for picture in draw(json.loads(file.read_text()), file):
        print(picture)
