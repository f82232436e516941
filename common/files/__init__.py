"""Files that blkreel writes and reads: safe creation and removal, locks, JSON and TOML with types, storage URLs."""
