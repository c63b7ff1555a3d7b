module github.com/tenure-project/tenure

go 1.26
