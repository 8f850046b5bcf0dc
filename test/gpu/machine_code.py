"""What the assembler made of kernels, as far as tests ask for it."""

import importlib.util
import pathlib
import re
import subprocess

#: A product of warpgroups that takes its left operand from four registers, which it reads until it is waited for.
PRODUCT = re.compile(r"HGMMA\S*\s+R\d+,\s*R(\d+),")
WRITER = re.compile(r"(?:@!?U?P\w+\s+)?(\S+)\s+(?:P\w+,\s*)?R(\d+)\b")
#: These have a register of theirs first that they read.
READERS = ("ST", "HGMMA", "BAR", "RED", "SYNCS", "UT")


def disassembler() -> pathlib.Path:
    """That of the pinned triton, which PyTorch brings."""
    folder = pathlib.Path(importlib.util.find_spec("triton").origin).parent
    return folder / "backends/nvidia/bin/nvdisasm"


def kernels_of(cubin: pathlib.Path) -> dict[str, list[str]]:
    """The instructions of each kernel, in their order."""
    text = subprocess.run([disassembler(), "-c", cubin], capture_output=True, text=True, check=True).stdout
    sections = re.split(r"\.section\s+\.text\.", text)[1:]
    return {section.split(",", 1)[0]: re.findall(r"/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;", section) for section in sections}


def registers_written(instruction: str) -> range:
    """The registers that an instruction writes, where that is told by its first operand."""
    match = WRITER.match(instruction)
    if not match or match[1].startswith(READERS):
        return range(0)
    width = 4 if ".128" in match[1] or "88.4" in match[1] else 2 if ".64" in match[1] or ".WIDE" in match[1] else 1
    return range(int(match[2]), int(match[2]) + width)


def has_operands_in_registers(ptx: str) -> bool:
    """Whether there is anything to ask `overwritten_operands`, since the disassembler takes a second: products of
    warpgroups whose left operand is in registers.
    """
    return bool(re.search(r"wgmma\.mma_async\S*\s+\{[^}]*\},\s*\{", ptx))


def overwritten_operands(cubin: pathlib.Path) -> list[str]:
    """Products of warpgroups of which a later instruction overwrites a left operand before they are waited for."""
    found = []
    for kernel, instructions in kernels_of(cubin).items():
        for index, instruction in enumerate(instructions):
            product = PRODUCT.search(instruction)
            if not product:
                continue
            operand = set(range(int(product[1]), int(product[1]) + 4))
            for later in instructions[index + 1 :]:
                if "WARPGROUP.DEPBAR" in later:
                    break
                if operand.intersection(registers_written(later)):
                    found.append(f"{kernel}: '{later}' while '{instruction}' is under way")
                    break
    return found
