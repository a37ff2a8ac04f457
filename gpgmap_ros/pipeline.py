"""Old home of the mapping pipeline: use gpgmap_ros.slam."""

from __future__ import annotations

from gpgmap_ros.deprecation import deprecated_names

__getattr__ = deprecated_names(
    __name__,
    {
        "MappingPipeline": "gpgmap_ros.slam:MappingPipeline",
        "CloudReport": "gpgmap_ros.slam:CloudReport",
        "EndedSubmap": "gpgmap_ros.slam.mapping_pipeline:EndedSubmap",
    },
)
