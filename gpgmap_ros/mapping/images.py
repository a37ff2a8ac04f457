"""Former name of `conversions`, until every importer uses the new one."""

from gpgmap_ros.mapping.conversions import image_from_layer, layer_from_image

__all__ = ["image_from_layer", "layer_from_image"]
