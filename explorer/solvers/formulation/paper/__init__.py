"""MONeT's joint integer program as the paper writes it (section 4, appendices B and C): dense rows, a stage each.

Stage 0 is the forward pass, stage t ends with backward operator t. As published, what backward operator t needs is
either made in stage t or saved *past* it, and the constant L̄ of appendix B bounds local memory: both cost this model
schedules that fit. Its bound holds for itself only.
"""

from explorer.solvers.formulation.paper.model import PaperModel, build

__all__ = ["PaperModel", "build"]
