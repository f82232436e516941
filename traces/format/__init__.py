"""The trace format: schema, reader, writer, footer and checks."""
