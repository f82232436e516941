"""What a report shows, before anybody draws it: charts, the table behind each, and who stands in them."""
