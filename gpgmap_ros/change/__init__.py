"""What changed between two surveys of one ground, and how certain that is.

common_cells       both maps on the same cells
alignment          the rigid motion that is left between them, fitted to unchanged ground
error_scale        how far unchanged ground differs, cell by cell
error_correlation  how far the errors of neighbouring cells are alike; draws of whole error fields
null_model         the three together, estimated in turn with what changed left out
detection          cells and patches that changed, with the false discovery rate held
patches            cut and fill: cells that belong together
comparison         `compare_maps`: all steps in order
"""

from gpgmap_ros.change.common_cells import NoCommonGround
from gpgmap_ros.change.comparison import Comparison, compare_maps
from gpgmap_ros.change.patches import Patch

__all__ = ["Comparison", "NoCommonGround", "Patch", "compare_maps"]
