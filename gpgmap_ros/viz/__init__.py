"""Pictures of maps: figures, 3D views, and the live view of a replay. No room that maps or closes loops uses it."""
