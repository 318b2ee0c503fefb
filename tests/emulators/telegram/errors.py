"""Refusals in the vendor's shape and words."""

from __future__ import annotations

from collections.abc import Mapping


class ApiError(Exception):
    """A refused call: HTTP status, the vendor's description, and, when a rule was broken by the client, that rule."""

    def __init__(
        self, status: int, description: str, *, rule: str | None = None, parameters: Mapping[str, int] | None = None
    ) -> None:
        super().__init__(description)
        self.status = status
        self.description = description
        self.rule = rule
        self.parameters = dict(parameters or {})

    def body(self) -> dict[str, object]:
        answer: dict[str, object] = {"ok": False, "error_code": self.status, "description": self.description}
        if self.parameters:
            answer["parameters"] = self.parameters
        return answer


def bad_request(reason: str, *, rule: str | None = None) -> ApiError:
    return ApiError(400, f"Bad Request: {reason}", rule=rule)


def forbidden(reason: str, *, rule: str | None = None) -> ApiError:
    return ApiError(403, f"Forbidden: {reason}", rule=rule)


def conflict(reason: str) -> ApiError:
    return ApiError(409, f"Conflict: {reason}")


def too_many(retry_after: int, *, rule: str | None = None) -> ApiError:
    return ApiError(
        429, f"Too Many Requests: retry after {retry_after}", rule=rule, parameters={"retry_after": retry_after}
    )


def upgraded(new_chat_id: int) -> ApiError:
    return ApiError(
        400,
        "Bad Request: group chat was upgraded to a supergroup chat",
        parameters={"migrate_to_chat_id": new_chat_id},
    )


def no_such_method(rule: str | None = None) -> ApiError:
    return ApiError(404, "Not Found: method not found", rule=rule)


UNAUTHORIZED = "Unauthorized"
TERMINATED_BY_POLL = "terminated by other getUpdates request; make sure that only one bot instance is running"
TERMINATED_BY_WEBHOOK = "terminated by setWebhook request"
WEBHOOK_ACTIVE = "can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first"
NOT_MODIFIED = (
    "message is not modified: specified new message content and reply markup are exactly the same as a current "
    "content and reply markup of the message"
)
QUERY_TOO_OLD = "query is too old and response timeout expired or query ID is invalid"
