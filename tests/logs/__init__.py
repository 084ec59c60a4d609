"""Real outputs of tools, one folder a tool, each with what it says as data (expected.yaml), and checks over all of them."""
