"""What each metric is: name, unit, formula and direction, once for every document, table and page."""
