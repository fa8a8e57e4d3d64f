"""Code for vLLM's own environment: one file that needs torch and safetensors, and nothing else of this package."""
