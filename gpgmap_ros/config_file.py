"""Former home of the settings' YAML files: use gpgmap_ros.config.yaml."""

from gpgmap_ros.deprecation import deprecated_names

__getattr__ = deprecated_names(
    __name__,
    {
        name: f"gpgmap_ros.config.yaml:{name}"
        for name in ("config_table", "config_yaml", "load_config", "parse_yaml", "save_config")
    },
)
