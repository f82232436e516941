"""Published benchmarks: recipes, the runner, results and their charts."""
