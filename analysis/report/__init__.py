"""Documents, pages, terminal tables and exports."""
