# The functions' code and the models' files, which the stacks below the first read. They are brought into the bucket and
# never removed: the version that serves, or that an update goes back to, may be one that the folder no longer has.

resource "terraform_data" "upload" {
  triggers_replace = [module.archive.told["ToldBucket"], local.uploads]

  provisioner "local-exec" {
    command = "${var.stacks}/bundles.sh"
  }
}
