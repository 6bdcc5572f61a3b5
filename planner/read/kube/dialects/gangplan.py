"""gangplan's own words on pods: the GPUs that a plan gave, and the gang of a pod."""

from models.apply.terms import GANG, GPUS
from planner.read.kube.dialects.base import (
    Dialect,
    GroupReader,
    HoldingReader,
    PodGroup,
    planned_gpus,
)

DIALECT = Dialect(
    "gangplan",
    precedence=140,
    groups=(GroupReader("gangplan", None, lambda of: PodGroup(of.key), labels=(GANG,)),),
    holdings=(HoldingReader(f"annotation {GPUS}", (GPUS,), planned_gpus),),
    annotations="gangplan.dev/",
)
