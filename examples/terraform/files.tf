# What `mark synth` wrote: the stacks by their part of the service, and the files of the bucket.

variable "stacks" {
  description = "The folder that `mark synth --out` wrote"
  type        = string
  default     = "stacks"
}

locals {
  manifest = jsondecode(file("${var.stacks}/manifest.json"))
  stacks = {
    for part, artifact in local.manifest.artifacts : part => {
      name     = artifact.properties.stackName
      template = "${var.stacks}/${artifact.properties.templateFile}"
      tags     = artifact.properties.tags
    } if artifact.type == "aws:cloudformation:stack"
  }
  uploads = fileset(var.stacks, "*/**")
}
