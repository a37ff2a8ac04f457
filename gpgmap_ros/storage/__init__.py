"""How files are kept: whole or not there, one writer per folder. Below everything that writes."""
