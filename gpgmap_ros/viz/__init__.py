"""Pictures of maps. Used by the command line only."""
