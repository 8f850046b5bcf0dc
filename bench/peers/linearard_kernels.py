"""The Triton kernels of the LinearARD project, where a checkout of it is on the path."""

from .peer import Peer, missing_module


def forms(**_):
    from kernels.attention_KL.integration import attn_kl_align

    def divergence(q_s, q_t):
        student, teacher = (rows.transpose(1, 2).contiguous() for rows in (q_s, q_t))
        scale = q_s.shape[-1] ** -0.5
        total = attn_kl_align(student, student, teacher, teacher, None, True, scale, scale)
        return total / (q_s.shape[0] * q_s.shape[1] * q_s.shape[2])

    return {"": divergence}


PEER = Peer("LinearARD's kernels", ("relation_kl",), missing_module("kernels.attention_KL.integration"), forms)
