"""What runs inside vLLM's own environment: one file that needs torch and safetensors, and nothing of this package."""
