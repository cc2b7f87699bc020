# The image of the inference function, for a model that no zip of Lambda can hold, such as one in torch, and of the
# function that trains forecasters (rollout.training_image; its stack names another handler). Build it in
# the folder of mark.yaml, with MArk's wheel in it (docs/deploy.md):
#     docker build -f .../infra/image/infer.Dockerfile --platform linux/amd64 --provenance=false \
#         -t ACCOUNT.dkr.ecr.REGION.amazonaws.com/REPOSITORY:TAG .
# Files that mark.yaml names by a relative path come with the folder. Which model it is, the stack says in the
# function's environment (lambda_handlers/served.py), so one image serves all models of a service.
# checkov:skip=CKV_DOCKER_2: Lambda starts it, and asks no health of it
# checkov:skip=CKV_DOCKER_3: Lambda runs it as a user of its own, whatever is said here
FROM public.ecr.aws/lambda/python:3.12
# What pip installs; left out, the wheel in the folder with all that models in torch need.
ARG MARK=
# Where torch comes from: its build without CUDA, since Lambda has no GPUs.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
# LightGBM's, one of the forecasters that are trained.
RUN dnf install -y libgomp && dnf clean all
WORKDIR ${LAMBDA_TASK_ROOT}
RUN --mount=type=bind,target=/given cd /given && wheel="$(ls -v ./mark_serving-*.whl | tail -n 1)" \
    && pip install --no-cache-dir --extra-index-url "$TORCH_INDEX" \
       "${MARK:-${wheel:?this folder lacks the wheel that pip wheel --no-deps makes of MArk}[models]}"
# Compiled code is kept in the only place that Lambda lets be written: numba does not import without one.
ENV NUMBA_CACHE_DIR=/tmp/numba
# Lambda runs it as a user who owns nothing.
COPY --chmod=755 . .
CMD ["mark.lambda_handlers.infer.handler"]
