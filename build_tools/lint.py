"""Lints the repository: clang-format and clang-tidy on C++, ruff on Python.

clang-format and ruff look at every file. clang-tidy takes seconds a file, so it looks at those that differ from
where the branch began, as many as fit its time; files it did not reach count as skipped. `--fix` repairs what the
tools can repair and checks nothing.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from xml.etree import ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
TIDY_SECONDS = 300
RUFF = [sys.executable, "-m", "ruff"]


def git(*arguments: str) -> str:
    result = subprocess.run(["git", *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return result.stdout.strip()


def commit(*arguments: str) -> str | None:
    """The commit that a git command names, or None where there is none."""
    result = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return result.stdout.strip() or None


def cpp_files() -> list[str]:
    names = git("ls-files", "--cached", "--others", "--exclude-standard", "*.cpp", "*.h").splitlines()
    return sorted(name for name in set(names) if (ROOT / name).exists())


def changed_files() -> set[str]:
    """Files that differ from where this branch left origin's; on that branch itself, from the previous commit."""
    head = commit("rev-parse", "--verify", "HEAD")
    base = commit("merge-base", "HEAD", "origin/HEAD")
    if base in (None, head):
        empty_tree = git("hash-object", "-t", "tree", "/dev/null")
        base = commit("rev-parse", "--verify", "HEAD~1") or empty_tree
    changed = git("diff", "--name-only", "--diff-filter=d", base).splitlines()
    return {*changed, *git("ls-files", "--others", "--exclude-standard").splitlines()}


def run(command: list[str]) -> subprocess.CompletedProcess:
    return subprocess.run(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


class Report:
    """Prints results as they come and keeps them as a JUnit file."""

    def __init__(self) -> None:
        self.suite = ElementTree.Element("testsuite", name="lint")

    def add(self, name: str, failure: str | None = None, skipped: str | None = None) -> None:
        case = ElementTree.SubElement(self.suite, "testcase", name=name)
        if failure is not None:
            ElementTree.SubElement(case, "failure")
            print(failure, flush=True)
        elif skipped is not None:
            ElementTree.SubElement(case, "skipped", message=skipped)
        word = "FAIL" if failure is not None else f"SKIP ({skipped})" if skipped is not None else "PASS"
        print(f"{word}: {name}", flush=True)

    def add_command(self, name: str, command: list[str]) -> None:
        result = run(command)
        self.add(name, failure=result.stdout if result.returncode else None)


def tidy(report: Report, build: pathlib.Path) -> None:
    database = json.loads((build / "compile_commands.json").read_text())
    compiled = {os.path.relpath(entry["file"], ROOT) for entry in database}
    files = sorted(compiled & changed_files())
    folders = "|".join(sorted({name.split("/")[0] for name in cpp_files()}))
    deadline = time.monotonic() + TIDY_SECONDS

    def check(name: str) -> subprocess.CompletedProcess | None:
        if time.monotonic() > deadline:
            return None
        return run(["clang-tidy", "-p", str(build), "--quiet", f"--header-filter=^{ROOT}/({folders})/", name])

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, result in zip(files, pool.map(check, files), strict=True):
            if result is None:
                report.add(f"clang-tidy {name}", skipped=f"not reached in {TIDY_SECONDS} s")
            else:
                report.add(f"clang-tidy {name}", failure=result.stdout if result.returncode else None)


def fix() -> None:
    if files := cpp_files():
        subprocess.run(["clang-format", "-i", *files], cwd=ROOT, check=True)
    subprocess.run([*RUFF, "check", "--fix-only", "--quiet", "."], cwd=ROOT, check=True)
    subprocess.run([*RUFF, "format", "."], cwd=ROOT, check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fix", action="store_true")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/dev", help="has compile_commands.json")
    parser.add_argument("--junit", type=pathlib.Path, help="write the results to this file too")
    options = parser.parse_args()
    if options.fix:
        fix()
        return 0
    report = Report()
    report.add_command("ruff check", [*RUFF, "check", "."])
    report.add_command("ruff format", [*RUFF, "format", "--check", "."])
    report.add_command("clang-format", ["clang-format", "--dry-run", "--Werror", "--ferror-limit=1", *cpp_files()])
    tidy(report, options.build.resolve())
    if options.junit:
        ElementTree.ElementTree(report.suite).write(options.junit)
    return int(report.suite.find(".//failure") is not None)


if __name__ == "__main__":
    sys.exit(main())
