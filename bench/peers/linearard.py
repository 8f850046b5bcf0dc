"""LinearARD's algorithm for the divergence of relations, in PyTorch: log-sum-exps of the rows of both relations, then
the divergence from products that are formed again, and a gradient that forms them a third time. A block of rows at a
time, so that memory grows with the length alone.
"""

import torch

from .peer import Peer

ROWS = 512


def blocks(tokens):
    return [(start, min(start + ROWS, tokens)) for start in range(0, tokens, ROWS)]


def logits(rows, begin, end):
    """Scores of so many rows with all rows up to the last of them, [heads, rows, columns]."""
    scores = torch.matmul(rows[:, begin:end], rows[:, :end].transpose(1, 2)).float() * rows.shape[-1] ** -0.5
    later = torch.arange(end, device=rows.device) > torch.arange(begin, end, device=rows.device)[:, None]
    return scores.masked_fill_(later, -torch.inf)


class Divergence(torch.autograd.Function):
    @staticmethod
    def forward(context, student, teacher):
        sums = [
            torch.cat([logits(rows, *block).logsumexp(-1) for block in blocks(rows.shape[1])], 1)
            for rows in (student, teacher)
        ]
        loss = torch.zeros((), device=student.device)
        for begin, end in blocks(student.shape[1]):
            log_s, log_t = (
                logits(rows, begin, end) - total[:, begin:end, None]
                for rows, total in zip((student, teacher), sums, strict=True)
            )
            loss += (log_t.exp() * torch.where(log_t > -torch.inf, log_t - log_s, 0)).sum()
        context.save_for_backward(student, teacher, *sums)
        context.rows = student.shape[0] * student.shape[1]
        return loss / context.rows

    @staticmethod
    def backward(context, cotangent):
        student, teacher, *sums = context.saved_tensors
        gradient = torch.zeros_like(student, dtype=torch.float32)
        for begin, end in blocks(student.shape[1]):
            of_student, of_teacher = (
                (logits(rows, begin, end) - total[:, begin:end, None]).exp()
                for rows, total in zip((student, teacher), sums, strict=True)
            )
            difference = (of_student - of_teacher).to(student.dtype)
            gradient[:, begin:end] += torch.matmul(difference, student[:, :end])
            gradient[:, :end] += torch.matmul(difference.transpose(1, 2), student[:, begin:end])
        return gradient.mul_(cotangent * student.shape[-1] ** -0.5 / context.rows).to(student.dtype), None


def algorithm(q_s, q_t):
    def heads_first(rows):
        return rows.transpose(1, 2).flatten(0, 1)

    return Divergence.apply(heads_first(q_s), heads_first(q_t))


PEER = Peer(
    "LinearARD's algorithm",
    ("relation_kl",),
    lambda: None,
    lambda **_: {"": algorithm},
    devices=("cpu", "cuda"),
)
